// Of one word, over all heads: which give most to which other word.
import { at } from "../grid";
import type { HeadId, Pass } from "./model";
import { isExact, keysOf, mapOf, queriesOf, sameHead, shownToken, sinkOf } from "./model";
import type { State, Store } from "./store";

export interface Look {
  id: HeadId;
  name: string;
  key: number;
  weight: number;
}
const most = 8;

// Not what a tokenizer added, not marks, not the word itself or its neighbours, which most heads look at for their place,
// and not a head's sink or a decoder's first token: as attend/look.h tells heads.
const isWord = (token: string): boolean => /[\p{L}\p{N}]/u.test(token) && !/^(\[\w+\]|<.*>)$/.test(token.trim());
export const looksOf = (pass: Pass, query: number): Look[] =>
  pass.heads
    .flatMap((own): Look[] => {
      const { layer, head, name } = own;
      const map = mapOf(pass, [layer, head]);
      if (pass.layers[layer]!.kind === "cross" || !isExact(pass.layers[layer]!, map) || query >= map.rows) return [];
      const tokens = keysOf(pass, layer);
      const causal = map.cols > 1 && Number.isNaN(at(map, 0, 1));
      const sink = sinkOf(own);
      const places = tokens.map((_, key) => key).filter((key) => Math.abs(key - query) > 1 && key !== sink && !(causal && key === 0) && isWord(tokens[key]!) && at(map, query, key) > 0);
      if (places.length === 0) return [];
      const key = places.reduce((best, place) => (at(map, query, place) > at(map, query, best) ? place : best));
      return [{ id: [layer, head], name, key, weight: at(map, query, key) }];
    })
    .sort((a, b) => b.weight - a.weight)
    .slice(0, most);

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
