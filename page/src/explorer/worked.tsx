// How one weight comes about: the query times the key, scaled, its exponential, beside the sum of the row's.
import { useEffect, useState } from "preact/hooks";
import { fixed } from "../grid";
import { Products } from "../steps/step";
import type { HeadId } from "./model";
import { shownToken } from "./model";
import type { HeadSteps, State, Store } from "./store";

// Of one pair, until another text is there; null: not asked yet, or no q and k were kept.
function useSteps(store: Store, state: State, id: HeadId, query: number, cell: number, open: boolean): HeadSteps | null {
  const [steps, setSteps] = useState<HeadSteps | null>(null);
  useEffect(() => {
    setSteps(null);
    if (!open || !state.pass!.layers[id[0]]!.qk) return;
    let asked = true;
    store.steps(id, { queries: [query, query + 1], keys: [cell, cell + 1] }).then((found) => { if (asked) setSteps(found); }, () => undefined);
    return () => { asked = false; };
  }, [state.pass, state.item, id[0], id[1], query, cell, open]);
  return steps;
}

export function Worked({ store, state, id, query, cell, queries, keys, weight }: { store: Store; state: State; id: HeadId; query: number; cell: number; queries: string[]; keys: string[]; weight: number | null }) {
  const [open, setOpen] = useState(false);
  const steps = useSteps(store, state, id, query, cell, open);
  const layer = state.pass!.layers[id[0]]!;
  const [from, to] = [shownToken(queries[query]!), shownToken(keys[cell]!)];
  return (
    <details class="worked" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      {/* A click on an <output> would not open it. */}
      <summary>How <bdi class="word">{from}</bdi> → <bdi class="word">{to}</bdi> comes about{weight !== null && !Number.isNaN(weight) && <>: <b class="number">{weight.toFixed(4)}</b></>}</summary>
      {!layer.qk && <p>Queries and keys were not kept in this recording.</p>}
      {steps && weight !== null && <Steps of={steps} state={state} words={[from, to]} shown={weight} />}
    </details>
  );
}

function Steps({ of: { tensors, scale, others }, state, words, shown }: { of: HeadSteps; state: State; words: [string, string]; shown: number }) {
  const number = (name: string): number => tensors[name]!.data[0]!;
  const [product, scaled, lse, weight] = [number("scores"), number("scaled_scores"), number("lse"), number("weights")];
  const logit = tensors.logits ? number("logits") : scaled;
  if (logit === -Infinity) return <p>The mask hides <bdi class="word">{words[1]}</bdi> from <bdi class="word">{words[0]}</bdi>: its score becomes -inf, and exp(-inf) is 0.</p>;
  const q = tensors.queries!.data, k = tensors.keys!.data;
  return (
    <>
      <p>The query of <bdi class="word">{words[0]}</bdi> times the key of <bdi class="word">{words[1]}</bdi>, number by number{q.length > 12 ? "; the largest products first" : ""}:</p>
      <Products names={["query", "key"]} total={product} most={12} terms={Array.from(q, (a, d) => ({ label: String(d + 1), a, b: k[d]! }))} />
      <p class="formula">scaled: {fixed(product)} × {fixed(scale)} = <output>{fixed(scaled)}</output></p>
      {others.length > 0 && <p class="formula">then {others.join(", ")}: <output>{fixed(logit)}</output></p>}
      <p class="formula">weight = exp({fixed(logit)} − {fixed(lse)}) = <output data-weight={weight}>{weight.toFixed(4)}</output></p>
      {state.by === "norm" && <p class="formula">by norm: {weight.toFixed(4)} × {fixed(weight > 0 ? shown / weight : 0)} = <output data-shown={shown}>{shown.toFixed(4)}</output></p>}
      <p class="quiet">{fixed(lse)} is the logarithm of the sum of the exponentials of this row's scores: subtracting it makes the row's weights sum to 1.{state.by === "norm" && <> By norm the weight is multiplied by the size of what <bdi class="word">{words[1]}</bdi> carries, beside what a row of this head takes in the mean.</>}</p>
    </>
  );
}
