// How one weight comes about: the query times the key, scaled, its exponential, beside the sum of the row's.
import { useEffect, useState } from "preact/hooks";
import { fixed } from "../grid";
import { Products } from "../steps/step";
import type { HeadId } from "./model";
import { shownToken } from "./model";
import type { State, Store } from "./store";

interface Numbers {
  q: { shape: number[]; data: Float32Array };
  k: { shape: number[]; data: Float32Array };
  lse: Float32Array;
  kvHeads: number;
  calls: { queries: number[]; scale: number; numbers: Record<string, number>; tensors: string[] }[];
}

// A layer's, until another text is there; null: no q and k were kept.
function useNumbers(store: Store, state: State, layer: number, open: boolean): Numbers | null {
  const [numbers, setNumbers] = useState<Numbers | null>(null);
  useEffect(() => {
    setNumbers(null);
    if (!open || !state.pass!.layers[layer]!.qk) return;
    let asked = true;
    void Promise.all([store.numbers(layer, "q"), store.numbers(layer, "k"), store.numbers(layer, "lse"), store.layer(layer)]).then(
      ([q, k, lse, { kv_heads, calls }]) => { if (asked) setNumbers({ q, k, lse: lse.data, kvHeads: kv_heads, calls }); },
      () => undefined,
    );
    return () => { asked = false; };
  }, [state.pass, layer, open]);
  return numbers;
}

const rowIn = ({ shape, data }: Numbers["q"], item: number, head: number, place: number): Float32Array => {
  const [, heads, rows, size] = shape as [number, number, number, number];
  const first = ((item * heads + head) * rows + place) * size;
  return data.subarray(first, first + size);
};

export function Worked({ store, state, id, query, cell, queries, keys, weight }: { store: Store; state: State; id: HeadId; query: number; cell: number; queries: string[]; keys: string[]; weight: number | null }) {
  const [open, setOpen] = useState(false);
  const numbers = useNumbers(store, state, id[0], open);
  const layer = state.pass!.layers[id[0]]!;
  const place = layer.heads.indexOf(id[1]);
  const [from, to] = [shownToken(queries[query]!), shownToken(keys[cell]!)];
  return (
    <details class="worked" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>How <bdi class="word">{from}</bdi> → <bdi class="word">{to}</bdi> comes about{weight !== null && !Number.isNaN(weight) && <>: <output>{weight.toFixed(4)}</output></>}</summary>
      {!layer.qk && <p>Queries and keys were not kept in this recording.</p>}
      {numbers && weight !== null && <Steps of={numbers} state={state} place={place} query={query} cell={cell} weight={weight} words={[from, to]} />}
    </details>
  );
}

function Steps({ of, state, place, query, cell, weight, words }: { of: Numbers; state: State; place: number; query: number; cell: number; weight: number; words: [string, string] }) {
  const heads = of.q.shape[1]!;
  const q = rowIn(of.q, state.item, place, query);
  const k = rowIn(of.k, state.item, Math.floor(place / (heads / of.kvHeads)), cell);
  const call = of.calls.find(({ queries: [begin, end] }) => query >= begin! && query < end!) ?? of.calls[0]!;
  const product = q.reduce((sum, value, d) => sum + value * k[d]!, 0);
  const lse = of.lse[(state.item * heads + place) * of.q.shape[2]! + query]!;
  const scaled = product * call.scale;
  const others = [...Object.keys(call.numbers), ...call.tensors];
  const exponential = Math.exp(scaled - lse);
  if (Number.isNaN(weight)) return <p>The mask hides <bdi class="word">{words[1]}</bdi> from <bdi class="word">{words[0]}</bdi>: its score becomes -inf, and exp(-inf) is 0.</p>;
  return (
    <>
      <p>The query of <bdi class="word">{words[0]}</bdi> times the key of <bdi class="word">{words[1]}</bdi>, number by number{q.length > 12 ? "; the largest products first" : ""}:</p>
      <Products names={["query", "key"]} total={product} terms={strongest(q, k)} />
      <p class="formula">scaled: {fixed(product)} × {fixed(call.scale)} = <output>{fixed(scaled)}</output></p>
      {others.length === 0 ? (
        <p class="formula">weight = exp({fixed(scaled)} − {fixed(lse)}) = <output data-weight={exponential}>{exponential.toFixed(4)}</output></p>
      ) : (
        <p>This layer also has {others.join(", ")}, which change the score before the softmax.</p>
      )}
      <p class="quiet">{fixed(lse)} is the logarithm of the sum of the exponentials of this row's scores: subtracting it makes the row's weights sum to 1.{state.by === "norm" && " By norm, that weight times the size of what the key carries is shown."}</p>
    </>
  );
}

const mostTerms = 12;
// The largest products, and what all others add.
const strongest = (q: Float32Array, k: Float32Array) => {
  const terms = Array.from(q, (a, d) => ({ label: String(d + 1), a, b: k[d]! })).sort((x, y) => Math.abs(y.a * y.b) - Math.abs(x.a * x.b));
  const rest = terms.slice(mostTerms).reduce((sum, { a, b }) => sum + a * b, 0);
  return terms.length <= mostTerms ? terms : [...terms.slice(0, mostTerms), { label: `${terms.length - mostTerms} more`, a: rest, b: 1 }];
};
