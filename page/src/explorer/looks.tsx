// Of one word, over all heads: which give most to which other word.
import { headOf, keysOf, queriesOf, sameHead, shownToken } from "./model";
import type { State, Store } from "./store";

export function Looks({ store, state }: { store: Store; state: State }) {
  const pass = state.pass!;
  const { query, head } = state.locked;
  if (pass.layers[head[0]]!.kind === "cross") return null;
  const [queries, keys] = [queriesOf(pass, head[0]), keysOf(pass, head[0])];
  const looks = pass.looks[query] ?? [];
  if (looks.length === 0) return null;
  return (
    <section class="looks" aria-label="The strongest heads of this word">
      <h2>What does <bdi class="word">{shownToken(queries[query]!)}</bdi> look at?</h2>
      <p class="quiet">The heads that give most to another word, farther than its neighbours. A head’s own sink is left out:</p>
      <ol>
        {looks.map(({ layer, head: number, key, weight }) => (
          <li key={`${layer} ${number}`}>
            <button type="button" onClick={() => store.lock({ head: [layer, number], query, key })} aria-pressed={sameHead([layer, number], head)}>
              <bdi class="word">{shownToken(keys[key]!)}</bdi> <small>head {headOf(pass, [layer, number])!.name}</small> <output>{weight.toFixed(2)}</output>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
