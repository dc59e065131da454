// The explorer: a text, what the model makes of it, all heads, and one of them.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { toClipboard } from "../copy";
import { addressInFull, isEmbedded } from "../language";
import { openDropped, openPicked } from "./files";
import { useHash } from "./hash";
import { HeadView } from "./head";
import { Looks } from "./looks";
import { headOf, shownToken } from "./model";
import { NextWords, WhyView } from "./next";
import { Overview } from "./overview";
import type { State, Store } from "./store";

const millions = (count: number): string => (count >= 1e9 ? `${(count / 1e9).toFixed(1)} billion` : count >= 1e6 ? `${Math.round(count / 1e6)} million` : count.toLocaleString("en"));
const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

function Facts({ state }: { state: State }) {
  const { info, pass, note } = state;
  if (info)
    return <p class="facts">{info.encoder_decoder ? "An encoder-decoder: it reads a text and writes another" : info.decoder ? "A decoder: it says what comes next" : "An encoder: it makes a vector of a text"}. {info.layers} layers of {info.heads} heads, {millions(info.parameters)} numbers in {info.formats.join(" and ")}, {megabytes(info.weight_bytes)}. It computes here; nothing leaves this page.</p>;
  if (pass) return <p class="facts">A recording of {pass.model || "attention"}: {pass.layers.length} layers, {pass.heads.length} heads, {pass.layers[0]!.queries} rows. {note}</p>;
  return null;
}

function Open({ store }: { store: Store }) {
  const [file, folder] = [useRef<HTMLInputElement>(null), useRef<HTMLInputElement>(null)];
  useEffect(() => folder.current?.setAttribute("webkitdirectory", ""), []);
  const onChange = (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    if (input.files && input.files.length > 0) void openPicked(store, input.files);
    input.value = "";
  };
  return (
    <details class="open">
      <summary>Open a model…</summary>
      <div>
        <p>A .gguf file, a recording (.attend), or a folder as Hugging Face has it; beside a model its Jacobian lens (.safetensors, of <code>attend lens fit</code>). It is computed where it lies and never leaves this machine. Dropping it on the page opens it, too.</p>
        <p class="buttons">
          <button type="button" onClick={() => file.current!.click()}>A file…</button>
          <button type="button" onClick={() => folder.current!.click()}>A folder…</button>
        </p>
        <input ref={file} type="file" hidden accept=".gguf,.attend,.safetensors" onChange={onChange} aria-label="A model's file" />
        <input ref={folder} type="file" hidden onChange={onChange} aria-label="A model's folder" />
      </div>
    </details>
  );
}

function Text({ store, state }: { store: Store; state: State }) {
  const { info, text, second, similarity, before, chat, pass } = state;
  if (!info) return null;
  const field = (event: Event) => (event.currentTarget as HTMLTextAreaElement).value;
  return (
    <div class="sentences">
      <textarea class={`text ${text.length > 90 ? "long" : ""}`} rows={1} aria-label="The text" spellcheck={false} value={text} onInput={(event) => void store.ask({ text: field(event) })} />
      {!info.decoder && (
        <div class="near">
          <label>beside <textarea class="text" rows={1} spellcheck={false} value={second} placeholder="a second sentence" onInput={(event) => void store.ask({ second: field(event) })} /></label>
          {similarity !== null && <p>similarity <output>{similarity.toFixed(4)}</output>{before?.similarity != null && <> with these heads out; with all heads <output>{before.similarity.toFixed(4)}</output></>}</p>}
        </div>
      )}
      {pass?.tokens.includes("[UNK]") && <p class="quiet unknown">[UNK] stands for what this model has no token for: it can't tell such words apart.</p>}
      {info.decoder && !info.encoder_decoder && <label class="switch"><input type="checkbox" role="switch" checked={chat} onChange={(event) => void store.ask({ chat: event.currentTarget.checked })} /> as a message in a chat</label>}
    </div>
  );
}

function Without({ store, state }: { store: Store; state: State }) {
  const { without, pass, before } = state;
  if (without.length === 0 || !pass) return null;
  return (
    <p class="without" role="status">
      Taken out: {without.map((id) => <button type="button" key={String(id)} onClick={() => void store.toggleHead(id)} aria-label={`Put head ${headOf(pass, id)?.name} back`}>{headOf(pass, id)?.name} ×</button>)}
      <button type="button" class="quiet" onClick={() => void store.ask({ without: [] })}>all heads back</button>
      {before?.own != null && <> The text's vector has a similarity of <output>{before.own.toFixed(4)}</output> to the one with all heads.</>}
    </p>
  );
}

function Search({ store, state }: { store: Store; state: State }) {
  const [word, setWord] = useState("");
  const tokens = state.pass!.tokens;
  const found = word.trim() === "" ? [] : tokens.map((_, place) => place).filter((place) => tokens[place]!.toLowerCase().includes(word.trim().toLowerCase()));
  const next = () => {
    const after = found.find((place) => place > state.locked.query) ?? found[0];
    if (after !== undefined) store.lock({ query: after, key: null });
  };
  if (tokens.length <= 16) return null;
  return (
    <form class="search" onSubmit={(event) => { event.preventDefault(); next(); }}>
      <label>find a word <input type="search" value={word} onInput={(event) => setWord(event.currentTarget.value)} /></label>
      {word !== "" && <output>{found.length === 0 ? "none" : `${found.length}, Enter for the next`}</output>}
    </form>
  );
}

const saying: Record<State["status"], string> = { opening: "opening", computing: "computing", writing: "writing", ready: "", failed: "" };

export function Explorer({ store }: { store: Store }) {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const [dropping, setDropping] = useState(false);
  useEffect(() => store.subscribe(() => draw(undefined as never)) as () => void, []);
  const { state } = store;
  const hash = useHash(store, state);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape") store.hover({}), store.lock({ key: null });
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  useEffect(() => { document.title = `${state.info ? state.text || state.name : state.name || "attend"} - what every head looks at`; }, [state.text, state.name]);
  const { status, error, pass, info } = state;
  return (
    <div
      class={`page explorer ${isEmbedded ? "embed" : ""} ${dropping ? "dropping" : ""}`} onDragOver={(event) => { event.preventDefault(); setDropping(true); }} onDragLeave={() => setDropping(false)}
      onDrop={(event) => { event.preventDefault(); setDropping(false); if (event.dataTransfer) void openDropped(store, event.dataTransfer); }}
    >
      <a class="skip" href="#heads" onClick={(event) => { event.preventDefault(); document.getElementById("heads")?.focus(); }}>Skip to the heads</a>
      {!isEmbedded && <header class="top">
        <h1>attend <span><bdi>{state.name}</bdi></span></h1>
        <span class="status" role="status">{status === "opening" && state.progress > 0 ? `opening, ${Math.round(state.progress * 100)} %` : saying[status]}</span>
        <Open store={store} />
        <button type="button" class="quiet" onClick={() => void toClipboard(location.href.replace(/#.*$/, "") + hash)}>Copy link</button>
      </header>}
      <section aria-label="The model and its text">
        <Facts state={state} />
        <Text store={store} state={state} />
      </section>
      {error && <p class="problem" role="alert">{error}</p>}
      <Without store={store} state={state} />
      {info?.decoder && pass && <NextWords store={store} state={state} />}
      {pass && <WhyView store={store} state={state} />}
      {pass && (
        <main id="heads" tabIndex={-1} class="looking">
          <div class="side">
            <Search store={store} state={state} />
            <Looks store={store} state={state} />
            <Overview store={store} state={state} />
          </div>
          <HeadView store={store} state={state} />
        </main>
      )}
      {!pass && status === "ready" && <p class="empty">Nothing is open yet: drop a model's file here, or choose one above.</p>}
      {isEmbedded ? <p class="in-full"><a href={addressInFull(hash)} target="_blank" rel="noopener">open it in full</a></p> : <footer>
        <p>Attention by itself is no explanation: a head that looks at a word need not use it (<cite>Jain and Wallace 2019; Wiegreffe and Pinter 2019</cite>). Taking a head out, and asking why, show what it does. {pass && <>Now: query <bdi>{shownToken(pass.tokens[state.locked.query] ?? "")}</bdi>.</>} Hover to look, click to keep, Esc to let go.</p>
      </footer>}
    </div>
  );
}
