// Of one word, over all heads: which give most to which other word.
import { keysOf, looksOf, queriesOf, sameHead, shownToken } from "./model";
import type { State, Store } from "./store";

export function Looks({ store, state }: { store: Store; state: State }) {
  const pass = state.pass!;
  const { query, head } = state.locked;
  if (pass.layers[head[0]]!.kind === "cross") return null;
  const [queries, keys] = [queriesOf(pass, head[0]), keysOf(pass, head[0])];
  const looks = looksOf(pass, query);
  if (looks.length === 0) return null;
  return (
    <section class="looks" aria-label="The strongest heads of this word">
      <h2>What does <bdi class="word">{shownToken(queries[query]!)}</bdi> look at?</h2>
      <p class="quiet">The heads that give most to another word, farther than its neighbours:</p>
      <ol>
        {looks.map(({ id, name, key, weight }) => (
          <li key={name}>
            <button type="button" onClick={() => store.lock({ head: id, query, key })} aria-pressed={sameHead(id, head)}>
              <bdi class="word">{shownToken(keys[key]!)}</bdi> <small>head {name}</small> <output>{weight.toFixed(2)}</output>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
