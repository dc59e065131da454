// One head: what each query gives to each key, as words, lines and a map.
import { useEffect, useState } from "preact/hooks";
import type { Scale } from "../colour";
import { shareColour, shareInk, signedColour } from "../colour";
import { argmax } from "../grid";
import { Legend } from "../legend";
import { Reasons } from "./back";
import { Compare } from "./compare";
import { Links } from "./links";
import { Map } from "./map";
import type { HeadId } from "./model";
import { headOf, isExact, keysOf, labelText, mapOf, queriesOf, sameHead, shownToken, sinkOf, topOf, writtenOf } from "./model";
import { Save } from "./save";
import type { State, Store } from "./store";
import { rowOf, selectionOf } from "./store";
import { StepsView } from "./steps";
import { Tokens } from "./tokens";
import { wordsOf } from "./words";
import { Worked } from "./worked";

const share = (value: number): string => value.toFixed(Math.abs(value) >= 0.0995 ? 2 : 3);
const mostKeys = 6;

// A query's strongest keys, in words.
function TopKeys({ store, row, query, keys, by, top }: { store: Store; row: Float32Array; query: string; keys: string[]; by: State["by"]; top: number }) {
  const places = Array.from(row, (_, place) => place).filter((place) => row[place]! > 0).sort((a, b) => row[b]! - row[a]!).slice(0, mostKeys);
  const all = row.reduce((sum, value) => sum + (value > 0 ? value : 0), 0);
  const these = places.reduce((sum, place) => sum + row[place]!, 0);
  return (
    <div class="top-keys">
      <h3><bdi class="word">{shownToken(query)}</bdi> gives most to</h3>
      <ol class="shares">
        {places.map((place) => (
          <li key={place}>
            <button type="button" class="plain" onClick={() => store.lock({ key: place })}><bdi>{shownToken(keys[place]!)}</bdi> <small>{place}</small></button>
            <span class="bar" aria-hidden="true"><i style={{ width: `${Math.min(100, (row[place]! / top) * 100)}%` }} /></span>
            <output>{share(row[place]!)}</output>
          </li>
        ))}
      </ol>
      <p class="quiet">{all > 0 ? `These show ${Math.round((these / all) * 100)} % of this row${by === "norm" ? "; 1 is what a row of this head carries in the mean" : ""}.` : "This row sees nothing."}</p>
    </div>
  );
}

const views = { map: "Map", links: "Links", compare: "Compare", steps: "Step by step" } as const;
const mostSteps = 64; // words whose steps are shown

const strips = { row: "what it looks at", received: "received from all", lift: "lift", entropy: "entropy", added: "what it added to the word asked about" } as const;
type Strip = keyof typeof strips;

// Numbers of all tokens: of keys what they received, of queries how spread their rows are.
function useStrip(store: Store, head: HeadId, place: number, strip: Strip, count: number): Float32Array | null {
  const [values, setValues] = useState<Float32Array | null>(null);
  const { pass, item } = store.state;
  useEffect(() => {
    setValues(null);
    if (strip === "row" || strip === "added") return;
    let asked = true;
    void store.numbers(head[0], strip).then(({ shape, data }) => {
      const first = (item * shape[1]! + place) * count;
      if (asked) setValues(data.slice(first, first + count));
    }, () => undefined);
    return () => { asked = false; };
  }, [pass, head[0], place, strip]);
  return values;
}

export function HeadView({ store, state }: { store: Store; state: State }) {
  const pass = state.pass!;
  const { head: id, query, key } = selectionOf(state);
  const [view, setView] = useState<keyof typeof views>("map");
  const [strip, setStrip] = useState<Strip>("row");
  const head = headOf(pass, id)!;
  const layer = pass.layers[id[0]]!;
  const [queries, keys] = [queriesOf(pass, id[0]), keysOf(pass, id[0])];
  const self = layer.kind !== "cross";
  const row = rowOf(state);
  const best = row ? argmax(row) : 0;
  const chosen = key ?? best;
  const out = state.without.some((each) => sameHead(each, id));
  const isQueries = strip === "row" || strip === "entropy";
  const values = useStrip(store, id, layer.heads.indexOf(id[1]), strip, strip === "entropy" ? queries.length : keys.length);
  // What this head added to the logit that is asked about, by the key that it read.
  const why = strip === "added" ? state.why?.answer.tensors.heads : undefined;
  const number = Number(layer.name.replace(/\D+/g, "")); // of the layer in its stack
  const added = why && self && why.shape[2] === keys.length && !layer.name.startsWith("encoder.") ? why.data.subarray((number * why.shape[1]! + id[1]) * keys.length, (number * why.shape[1]! + id[1] + 1) * keys.length) : null;
  const largest = values ? values.reduce((most, value) => Math.max(most, value), 0) : 1;
  const colours = strip === "row" ? row : strip === "added" ? added : values;
  const paint = (place: number, scale: Scale) => {
    if (added) return { background: signedColour(added[place]!, added.reduce((most, value) => Math.max(most, Math.abs(value)), 0)), color: "var(--ink)" };
    const value = colours ? colours[place]! / (strip === "row" ? top : largest || 1) : NaN;
    return Number.isNaN(value) ? undefined : { background: shareColour(value, scale), color: shareInk(value, scale) };
  };
  const sink = sinkOf(head);
  const top = topOf(pass, id);
  const canStep = layer.qk && !pass.words && Math.max(queries.length, keys.length) <= mostSteps;
  const hasParts = isExact(layer, mapOf(pass, id)) && wordsOf(pass.tokens).length < pass.tokens.length;
  return (
    <section class="head" aria-label={`Head ${head.name}`}>
      <header>
        <h2>Head {head.name}</h2>
        <p class={`labels ${head.labels.length === 0 ? "quiet" : ""}`}>{labelText(head)}</p>
        <Save store={store} state={state} id={id} queries={queries} keys={keys} />
        {state.info && <button type="button" aria-pressed={out} onClick={() => void store.toggleHead(id)}>{out ? "Put it back" : "Take it out"}</button>}
      </header>

      <div class="strip">
        <label class="quiet">The words' colours: <select value={strip} onChange={(event) => setStrip(event.currentTarget.value as Strip)}>
          {Object.entries(strips).map(([name, words]) => <option key={name} value={name} disabled={(name !== "row" && pass.words !== undefined) || (name === "added" && !state.why)}>{words}</option>)}
        </select></label>
        {strip === "row" && <p>What <bdi class="word">{shownToken(queries[query]!)}</bdi> looks at{self ? ": click another word to see what that one looks at." : ""}</p>}
        {!self && <Tokens label="Queries" tokens={queries} on={query} onHover={(place) => store.hover(place === null ? {} : { query: place })} onChoose={(place) => store.lock({ query: place, key: null })} />}
        <Tokens
          label={self ? "Words" : "Keys"} tokens={isQueries && strip === "entropy" ? queries : keys} on={self ? query : chosen} written={self ? writtenOf(pass, id[0]) : undefined}
          paint={(place) => paint(place, strip === "row" ? state.scale : "linear")} words={colours ? (place) => (Number.isNaN(colours[place]!) ? "not seen" : share(colours[place]!)) : undefined}
          hatched={strip === "row" && row ? (place) => Number.isNaN(row[place]!) : undefined}
          onChoose={(place) => store.lock(self ? { query: place, key: null } : { key: place })}
        />
      </div>

      <div class="tabs" role="group" aria-label="How the head is drawn">
        {Object.entries(views).map(([name, words]) => <button type="button" key={name} aria-pressed={view === name} disabled={name === "steps" && !canStep} onClick={() => setView(name as keyof typeof views)}>{words}</button>)}
        <label class="quiet">by <select value={state.by} onChange={(event) => void store.lookBy(event.currentTarget.value as State["by"])}>
          <option value="weight">weight</option>
          <option value="norm">norm: weight times the size of what a key carries</option>
        </select></label>
        <Legend scale={state.scale} top={top} onScale={(scale) => store.set({ scale })} />
        {sink !== null && <label class="switch"><input type="checkbox" role="switch" checked={state.noSink} onChange={(event) => store.set({ noSink: event.currentTarget.checked })} /> without the sink, <bdi>{shownToken(keys[sink] ?? "")}</bdi></label>}
        {(pass.words || hasParts) && <label class="switch"><input type="checkbox" role="switch" checked={state.whole} onChange={(event) => store.lookAtWords(event.currentTarget.checked)} /> whole words</label>}
      </div>
      {view === "steps" && canStep && <StepsView store={store} state={state} id={id} queries={queries} keys={keys} cell={[query, chosen]} />}
      {(view !== "steps" || !canStep) && <div class="drawn">
        {(view === "map" || view === "steps") && <Map key={`${queries.length} ${keys.length}`} store={store} state={state} id={id} queries={queries} keys={keys} cell={[query, chosen]} sink={state.noSink ? sink : null} />}
        {view === "links" && <Links store={store} top={top} map={mapOf(pass, id)} queries={queries} keys={keys} query={query} sink={sink} written={self ? writtenOf(pass, id[0]) : Infinity} />}
        {view === "compare" && <Compare store={store} state={state} id={id} queries={queries} keys={keys} cell={[query, chosen]} />}
        {row && <TopKeys store={store} row={row} query={queries[query]!} keys={keys} by={state.by} top={top} />}
      </div>}
      {!pass.words && view !== "steps" && <Worked store={store} state={state} id={id} query={query} cell={chosen} queries={queries} keys={keys} weight={row?.[chosen] ?? null} />}
      {state.info && self && !pass.words && !layer.name.startsWith("encoder.") && <Reasons store={store} state={state} id={id} query={query} cell={chosen} queries={queries} keys={keys} />}
    </section>
  );
}
