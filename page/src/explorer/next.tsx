// What a decoder says next, word by word, and why.
import { useEffect, useRef } from "preact/hooks";
import { signedColour } from "../colour";
import type { Tensor } from "../memory";
import { fixed } from "../grid";
import { TraceView } from "./back";
import { CircuitView } from "./circuit";
import type { HeadId, Next as Likely, Pass, Why as Answer } from "./model";
import { decoderHead, headOf, ownTokens, shownToken } from "./model";
import type { State, Store } from "./store";
import { Tokens } from "./tokens";

const percent = (share: number): string => `${(share * 100).toFixed(share >= 0.0995 ? 0 : 1)} %`;

function Likeliest({ store, state, next, before }: { store: Store; state: State; next: Likely[]; before: Likely[] | null }) {
  return (
    <ol class="likeliest">
      {next.slice(0, 6).map(({ id, token, probability }) => {
        const was = before?.find((each) => each.id === id);
        return (
          <li key={id}>
            <button type="button" title={`Why ${shownToken(token)}?`} aria-pressed={state.why?.answer.token === id} onClick={() => void store.why(id)}>
              <bdi>{shownToken(token)}</bdi> <output>{percent(probability)}</output>
              {before && <small>{was ? `was ${percent(was.probability)}` : "was not among ten"}</small>}
              <span class="bar" aria-hidden="true"><i style={{ width: `${probability * 100}%` }} /></span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}

export function NextWords({ store, state }: { store: Store; state: State }) {
  const { pass, written, status, without, before } = state;
  const writing = status === "writing";
  return (
    <section class="next" aria-label="What comes next">
      <header>
        <h2>What comes next?</h2>
        {writing ? <button type="button" class="main" onClick={() => store.stop()}>Stop</button> : <button type="button" onClick={() => void store.write()}>Write on</button>}
        <p class="quiet">Click a word to see why.</p>
      </header>
      {without.length > 0 && before?.next?.[0] && <p>With all heads it was <bdi class="word">{shownToken(before.next[0].token)}</bdi>, {percent(before.next[0].probability)}.</p>}
      {!writing && pass && <Likeliest store={store} state={state} next={pass.next} before={before?.next ?? null} />}
      {written && (
        <p class="said" aria-live="polite">
          {written.words.map(({ id, token }, place) => (
            <button type="button" key={place} disabled={writing} title={`Why ${shownToken(token)}?`} onClick={() => void store.why(id, pass!.written - 1 + place)}><bdi>{shownToken(token)}</bdi></button>
          ))}
          {written.ended && <small class="quiet"> and there it ends the text</small>}
        </p>
      )}
    </section>
  );
}

interface Part {
  name: string;
  value: number;
  at?: { head: HeadId; key: number }; // a head, and the key by which it adds most
}
const mostParts = 10;

// A tensor [L,H,T] of heads as parts.
const partsOf = (pass: Pass, { shape, data }: Tensor, kind: "self" | "cross"): Part[] => {
  const [layers, heads, tokens] = shape as [number, number, number];
  return Array.from({ length: layers * heads }, (_, n) => {
    const row = data.subarray(n * tokens, (n + 1) * tokens);
    const id = decoderHead(pass, Math.floor(n / heads), n % heads, kind);
    const key = row.reduce((best, value, place) => (Math.abs(value) > Math.abs(row[best]!) ? place : best), 0);
    return { name: `head ${headOf(pass, id)?.name}`, value: row.reduce((sum, value) => sum + value, 0), at: { head: id, key } };
  });
};

function Parts({ store, pass, answer }: { store: Store; pass: Pass; answer: Answer }) {
  const ofHeads = partsOf(pass, answer.tensors.heads!, "self");
  const ofCross = answer.tensors.cross ? partsOf(pass, answer.tensors.cross, "cross") : [];
  const all: Part[] = [
    ...ofHeads, ...ofCross,
    ...Array.from(answer.tensors.mlps!.data, (value, layer): Part => ({ name: `MLP of layer ${layer}`, value })),
    { name: "the words themselves (embedding)", value: answer.embedding },
    { name: "biases", value: answer.bias },
  ];
  const sorted = [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const largest = Math.abs(sorted[0]?.value ?? 1);
  const rest = sorted.slice(mostParts).reduce((sum, { value }) => sum + value, 0);
  const sum = all.reduce((total, { value }) => total + value, 0);
  const largestHead = Math.max(...[...ofHeads, ...ofCross].map(({ value }) => Math.abs(value)), 1e-9);
  const go = ({ at }: Part) => at && store.lock({ ...at, query: answer.position });
  return (
    <>
      <table>
        <caption>The parts of the logit, largest first</caption>
        <thead><tr><th scope="col">part</th><th scope="col">adds</th><th aria-hidden="true" /></tr></thead>
        <tbody>
          {sorted.slice(0, mostParts).map((part) => (
            <tr key={part.name}>
              <th scope="row">{part.at ? <button type="button" class="plain" onClick={() => go(part)}>{part.name}</button> : part.name}</th>
              <td>{fixed(part.value)}</td>
              <td class="bar" aria-hidden="true"><i class={part.value < 0 ? "negative" : undefined} style={{ width: `${(Math.abs(part.value) / largest) * 100}%` }} /></td>
            </tr>
          ))}
          <tr><th scope="row">{all.length - Math.min(mostParts, all.length)} other parts</th><td>{fixed(rest)}</td><td /></tr>
          <tr class="sum"><th scope="row">logit</th><td data-sum={sum} data-logit={answer.logit}>{fixed(answer.logit)}</td><td /></tr>
        </tbody>
      </table>
      <figure>
        {[ofHeads, ofCross].filter(({ length }) => length > 0).map((parts, n) => (
          <div key={n} class="why-heads" style={{ gridTemplateColumns: `repeat(${answer.tensors.heads!.shape[1]}, 1fr)` }} role="img" aria-label={`What each of ${parts.length} heads adds to the logit${n === 1 ? ", of cross-attention" : ""}`}>
            {parts.map((part) => <i key={part.name} style={{ background: signedColour(part.value, largestHead) }} title={`${part.name}: ${fixed(part.value)}`} onClick={() => go(part)} />)}
          </div>
        ))}
        <figcaption class="quiet">All heads, layer 0 above{ofCross.length > 0 ? ", and those of cross-attention" : ""}: <i class="swatch negative" /> takes away, <i class="swatch" /> adds, up to {fixed(largestHead)}.</figcaption>
      </figure>
    </>
  );
}

export function WhyView({ store, state }: { store: Store; state: State }) {
  const { why, pass, against } = state;
  if (!why || !pass) return null;
  const { answer, about } = why;
  const added = answer.tensors.by_token!.data;
  const tokens = ownTokens(pass).slice(0, added.length);
  const largest = added.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return (
    <section class="why" aria-label={`Why ${about}`}>
      <header>
        <h2>Why <bdi class="word">{shownToken(about)}</bdi>?</h2>
        <label class="quiet">rather than <input type="text" value={against} size={8} placeholder="any other" aria-label="rather than this word" onChange={(event) => { store.set({ against: event.currentTarget.value }); void store.why(answer.token, answer.position); }} /></label>
        <button type="button" class="quiet" onClick={() => store.set({ why: null })}>Close</button>
      </header>
      <p>Every head and MLP adds to the number (the logit) that makes <bdi class="word">{shownToken(about)}</bdi> likely{against !== "" && <>, less that of <bdi class="word">{against}</bdi></>}. The parts sum to it: <output>{fixed(answer.logit)}</output>. They are what each wrote into the answer itself: what a head did through later ones is in those, and “Trace it back” below follows it.</p>
      {state.without.length > 0 && <p class="quiet">This, and what each layer would have said, is of the model with all its heads.</p>}
      <div class="strip">
        <p class="quiet">Through the heads, by the word that they read:</p>
        <Tokens
          label="What each word added" tokens={tokens} on={null} paint={(place) => ({ background: signedColour(added[place]!, largest), color: "var(--ink)" })}
          words={(place) => fixed(added[place]!)} numbered onChoose={(place) => store.lock({ key: place })}
        />
      </div>
      <div class="parts">
        <Parts store={store} pass={pass} answer={answer} />
        <Lens store={store} state={state} pass={pass} answer={answer} />
      </div>
      <p class="quiet">Head {headOf(pass, state.locked.head)?.name} is shown below: click a part to see where that head looks.</p>
      <TraceView store={store} state={state} />
      {!state.info?.encoder_decoder && <CircuitView store={store} state={state} />}
    </section>
  );
}

function Lens({ store, state: { jacobian, byJacobian }, pass, answer: { token, tokens, position, tensors } }: { store: Store; state: State; pass: Pass; answer: Answer }) {
  const ids = tensors.ids!;
  const [layers, , top] = ids.shape as [number, number, number];
  // The last layers say most.
  const table = useRef<HTMLDivElement>(null);
  useEffect(() => { table.current!.scrollTop = table.current!.scrollHeight; }, [tensors]);
  return (
    <div class="lens">
      <h3>What it would have said before each layer</h3>
      <p class="quiet">The model's own last step, put before every layer at <bdi class="word">{shownToken(ownTokens(pass)[position] ?? "")}</bdi>{byJacobian && ", turned into what it means for the last one"}: the likeliest words and their probabilities.</p>
      {jacobian && <label class="switch"><input type="checkbox" role="switch" checked={byJacobian} onChange={(event) => void store.readBy(event.currentTarget.checked)} /> by the Jacobian lens {jacobian.name}, of {jacobian.prompts} prompts</label>}
      <div ref={table} class="scroll" tabIndex={0}>
        <table class="plain">
          <thead><tr><th scope="col">before</th>{Array.from({ length: top }, (_, n) => <th scope="col" key={n} colSpan={2}>{n + 1}</th>)}</tr></thead>
          <tbody>
            {Array.from({ length: layers }, (_, layer) => (
              <tr key={layer}>
                <th scope="row">{layer === layers - 1 ? "answer" : `layer ${layer}`}</th>
                {Array.from({ length: top }, (_, n) => {
                  const at = layer * top + n;
                  const on = ids.data[at] === token ? "on" : undefined;
                  return [<td key={`${n}t`} class={on}><bdi>{shownToken(tokens[at]!)}</bdi></td>, <td key={`${n}p`} class={on}>{percent(Math.exp(tensors.log_probabilities!.data[at]!))}</td>];
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
