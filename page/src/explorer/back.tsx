// From the answer back to the words: which heads wrote it, why each looked where it looked, and who wrote what it read.
import { useEffect, useRef, useState } from "preact/hooks";
import { signed } from "../grid";
import type { HeadId, Part, Pass, Reasons as Answer, Traced } from "./model";
import { decoderHead, headOf, ownTokens, shownToken } from "./model";
import type { State, Store } from "./store";
import { tracedName } from "./store";

const besideMean = (value: number): string => (value < 0 ? "below the mean" : "above the mean");
const percent = (share: number): string => `${Math.round(share * 100)} %`;

const idOf = (pass: Pass, { kind, layer, head }: Part): HeadId | null => (kind === "head" || kind === "cross" ? decoderHead(pass, layer!, head!, kind === "head" ? "self" : "cross") : null);
const nameOf = (pass: Pass, part: Part): string => {
  const id = idOf(pass, part);
  return id ? `head ${headOf(pass, id)?.name}` : part.kind === "mlp" ? `MLP of layer ${part.layer}` : part.kind === "embedding" ? "the word itself" : "biases";
};

// A head leads to what it looks at from the row in which it wrote.
function Name({ store, pass, part, row }: { store: Store; pass: Pass; part: Part & { key?: number }; row: number }) {
  const id = idOf(pass, part);
  const name = nameOf(pass, part);
  return id ? <button type="button" class="plain" onClick={() => store.lockToken({ head: id, query: row, key: part.key ?? null })}>{name}</button> : <>{name}</>;
}

interface Line {
  part: Part;
  value: number;
  share?: number;
  without?: string | undefined; // what really changes
}

function Lines({ store, pass, title, row, lines, rest }: { store: Store; pass: Pass; title: preact.ComponentChildren; row: number; lines: Line[]; rest?: { count: number; value: number } }) {
  const largest = Math.max(...lines.map(({ value }) => Math.abs(value)), 1e-9);
  const measured = lines.some(({ without }) => without !== undefined);
  return (
    <table class="lines">
      <caption>{title}</caption>
      {measured && <thead><tr><th scope="col">written by</th><th scope="col">adds</th><th aria-hidden="true" /><th scope="col">share</th><th scope="col">without it</th></tr></thead>}
      <tbody>
        {lines.map(({ part, value, share, without }) => (
          <tr key={nameOf(pass, part)}>
            <th scope="row"><Name store={store} pass={pass} part={part} row={row} /></th>
            <td>{signed(value)}</td>
            <td class="bar" aria-hidden="true"><i class={value < 0 ? "negative" : undefined} style={{ width: `${(Math.abs(value) / largest) * 100}%` }} /></td>
            {share !== undefined && <td>{percent(share)}</td>}
            {measured && <td>{without}</td>}
          </tr>
        ))}
        {rest && <tr><th scope="row">{rest.count} other parts</th><td>{signed(rest.value)}</td><td /></tr>}
      </tbody>
    </table>
  );
}

// ---- One head ----

const mostParts = 6;
const mostPairs = 4;

// Of one pair, until another text is there.
function useReasons(store: Store, state: State, id: HeadId, query: number, key: number, open: boolean): { answer: Answer | null; error: string | null } {
  const [found, setFound] = useState<{ answer: Answer | null; error: string | null }>({ answer: null, error: null });
  useEffect(() => {
    setFound({ answer: null, error: null });
    if (!open) return;
    let asked = true;
    store.reasons(id, query, key).then((answer) => { if (asked) setFound({ answer, error: null }); }, (error: Error) => { if (asked) setFound({ answer: null, error: error.message }); });
    return () => { asked = false; };
  }, [state.pass, id[0], id[1], query, key, open]);
  return found;
}

// What is clicked, not what is under the pointer: each asks for a pass.
export function Reasons({ store, state, id, query, cell, queries, keys }: { store: Store; state: State; id: HeadId; query: number; cell: number; queries: string[]; keys: string[] }) {
  const [open, setOpen] = useState(false);
  const pair = useRef({ id, query, cell });
  if (Object.keys(state.hovered).length === 0) pair.current = { id, query, cell };
  const { id: head, query: from, cell: to } = pair.current;
  const { answer, error } = useReasons(store, state, head, from, to, open);
  const pass = state.pass!;
  const [asks, looked] = [shownToken(queries[from] ?? ""), shownToken(keys[to] ?? "")];
  return (
    <details class="worked reasons" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Why <bdi class="word">{asks}</bdi> looks at <bdi class="word">{looked}</bdi></summary>
      {error !== null && <p>{error}</p>}
      {answer && <Sides store={store} pass={pass} answer={answer} rows={[from, to]} words={[asks, looked]} />}
      {answer && state.without.length > 0 && <p class="quiet">This is of the model with all its heads.</p>}
    </details>
  );
}

const sideOf = (parts: Part[], values: Float32Array): { lines: Line[]; rest: { count: number; value: number }; sum: number } => {
  const all = parts.map((part, n): Line => ({ part, value: values[n]! })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const rest = all.slice(mostParts);
  return { lines: all.slice(0, mostParts), rest: { count: rest.length, value: rest.reduce((sum, { value }) => sum + value, 0) }, sum: all.reduce((sum, { value }) => sum + value, 0) };
};

function Sides({ store, pass, answer: { score, bias, parts, tensors }, rows: [query, key], words: [asks, looked] }: { store: Store; pass: Pass; answer: Answer; rows: [number, number]; words: [string, string] }) {
  const [ofQuery, ofKey] = [sideOf(parts, tensors.query!.data), sideOf(parts, tensors.key!.data)];
  const pairs = Array.from(tensors.pairs!.data, (value, n) => ({ value, of: parts[Math.floor(n / parts.length)]!, with: parts[n % parts.length]! }))
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, mostPairs);
  return (
    <>
      <p>Its score is <output data-score={score} data-sum={ofQuery.sum + bias}>{Math.abs(score).toFixed(2)}</output> {besideMean(score)} of all that <bdi class="word">{asks}</bdi> sees. It is a query times a key, and each is a sum of what earlier parts wrote into its row. So the score is a sum over their pairs, and each table sums to it{bias !== 0 && <>, with {signed(bias)} by the distance</>}.</p>
      <div class="sides">
        <Lines store={store} pass={pass} title={<>By what <bdi class="word">{asks}</bdi> holds</>} row={query} {...ofQuery} />
        <Lines store={store} pass={pass} title={<>By what <bdi class="word">{looked}</bdi> holds</>} row={key} {...ofKey} />
      </div>
      <p class="quiet">The strongest pairs: {pairs.map(({ value, of, with: other }, n) => <span key={n}>{n > 0 && "; "}{nameOf(pass, of)} × {nameOf(pass, other)} {signed(value)}</span>)}. A head's name leads to what it looked at from that word.</p>
    </>
  );
}

// ---- The answer ----

export function TraceView({ store, state }: { store: Store; state: State }) {
  const { why } = state;
  const pass = state.pass!;
  const traced = why!.traced;
  const answer = <bdi class="word">{shownToken(why!.about)}</bdi>;
  return (
    <section class="trace" aria-label="From the answer back to the words">
      <header>
        <h3>From the answer back to the words</h3>
        {!traced && <button type="button" onClick={() => void store.traceBack()}>Trace it back</button>}
        {traced && traced.left > 0 && <p class="quiet" role="status">{traced.left} parts are still to be taken out</p>}
      </header>
      {!traced && <p class="quiet">The heads that wrote {answer}: why each looked where it looked, and who wrote what it read there.</p>}
      {traced && <p class="quiet">Numbers are sums: what each part did directly. “Without it” is the answer's number, {signed(traced.trace.logit)}, in a pass in which the part wrote nothing in that row.</p>}
      {traced?.trace.heads.map((head) => <TracedHead key={`${head.wrote.layer}.${head.wrote.head} ${head.wrote.key}`} store={store} pass={pass} state={state} head={head} />)}
    </section>
  );
}

function TracedHead({ store, pass, state, head }: { store: Store; pass: Pass; state: State; head: NonNullable<NonNullable<State["why"]>["traced"]>["trace"]["heads"][number] }) {
  const { trace, without } = state.why!.traced!;
  const tokens = ownTokens(pass.words ?? pass);
  const word = (row: number) => <bdi class="word">{shownToken(tokens[row] ?? String(row))}</bdi>;
  const changed = (part: Traced, row: number): string => {
    if (part.kind === "embedding" || part.kind === "bias") return "";
    const value = without.get(tracedName(part, row));
    return value === undefined ? "…" : signed(value);
  };
  const lines = (parts: Traced[], row: number): Line[] => parts.map((part) => ({ part, value: part.value, share: part.share, without: changed(part, row) }));
  const key = head.wrote.key!;
  return (
    <article>
      <p><Name store={store} pass={pass} part={head.wrote} row={trace.position} /> wrote <output>{signed(head.wrote.value)}</output> of it ({percent(head.wrote.share)}), reading {word(key)}. Without it the answer's number is <output>{changed(head.wrote, trace.position)}</output>.</p>
      <div class="sides">
        <Lines store={store} pass={pass} row={trace.position} lines={lines(head.query, trace.position)} title={<>It looked there, {Math.abs(head.score).toFixed(2)} {besideMean(head.score)}, by what {word(trace.position)} holds</>} />
        <Lines store={store} pass={pass} row={key} lines={lines(head.key, key)} title={<>and by what {word(key)} holds</>} />
        <Lines store={store} pass={pass} row={key} lines={lines(head.read, key)} title={<>What it read there, {signed(head.value)} for all of its weight</>} />
      </div>
    </article>
  );
}
