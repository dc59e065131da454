import { at, fixed, gridOf, isCross } from "../grid";
import { Term } from "../glossary";
import { roam, tabOf } from "../roving";
import { Heading, Row, Show, Word, word } from "./step";
import type { Step, StepProps } from "./step";

function Ids({ p, tokens, ids, axis }: { p: StepProps; tokens: string[]; ids: number[]; axis: "i" | "j" }) {
  return (
    <ol class="ids" onKeyDown={roam}>
      {ids.map((id, place) => (
        <li key={place}>
          <button type="button" class={p.sel[axis] === place ? "on" : undefined} aria-pressed={p.sel[axis] === place} tabIndex={tabOf(p.sel[axis] === place)} onClick={() => p.dispatch({ do: "lock", cursor: { [axis]: place } })}>
            <bdi>{tokens[place]}</bdi><span class="arrow" aria-hidden="true">↓</span><output>{id}</output>
          </button>
        </li>
      ))}
    </ol>
  );
}

export const words: Step = {
  id: "words",
  name: "Words",
  title: "Words become ids",
  perHead: false,
  text: (p) =>
    p.trace.vocabulary_size > p.trace.tokens.length ? (
      <p>The document gives each word an id in a vocabulary of {p.trace.vocabulary_size}.</p>
    ) : (
      <p>Commas are dropped and the words are split at white space. A word's id is its place among the sorted, distinct words, from 0; capitals come first.</p>
    ),
  stage: (p) => (
    <>
      <Ids p={p} tokens={p.trace.tokens} ids={p.trace.ids} axis="i" />
      {p.trace.ids_2.length > 0 && (
        <>
          <p>The second sentence has a vocabulary of its own.</p>
          <Ids p={p} tokens={p.trace.tokens_2} ids={p.trace.ids_2} axis="j" />
        </>
      )}
      {isCross(p.trace) && p.trace.ids_2.length === 0 && <p>The second sequence is numbers, without words: x1 to x{p.trace.key_labels.length}.</p>}
    </>
  ),
  legend: () => null,
  worked: (p) => {
    const id = p.trace.ids[p.sel.i]!;
    const same = p.trace.ids.filter((other) => other === id).length;
    const sorted = p.trace.tokens.filter((_, place) => p.trace.ids.indexOf(p.trace.ids[place]!) === place).map((token) => ({ token, id: p.trace.ids[p.trace.tokens.indexOf(token)]! }));
    return (
      <>
        <Heading><Word>{word(p, p.sel.i)}</Word> has the id {id}</Heading>
        {same > 1 && <p>It stands there {same} times, each time with the same id: nothing tells the places apart, unless positions are added.</p>}
        <table class="plain vocabulary">
          <thead><tr><th scope="col">id</th><th scope="col">word</th></tr></thead>
          <tbody>
            {sorted.sort((a, b) => a.id - b.id).map(({ token, id: its }) => (
              <tr key={its} class={its === id ? "on" : undefined}><td>{its}</td><th scope="row"><bdi>{token}</bdi></th></tr>
            ))}
          </tbody>
        </table>
      </>
    );
  },
};

export const embeddings: Step = {
  id: "embeddings",
  name: "Embeddings",
  title: "Ids become embeddings",
  perHead: false,
  text: (p) =>
    p.trace.vocabulary_size === 0 ? (
      <p>The document gives the <Term of="embedding">embeddings</Term>: one row of numbers for each word.</p>
    ) : (
      <p>
        Each id picks one row of a table of random numbers from N(0, 1), seed {p.trace.made.seed}: the word's <Term of="embedding" />. Training would learn
        the table, so that words that mean alike have rows alike.
      </p>
    ),
  formula: (p) => {
    const { rows, cols } = gridOf(p.trace, "embeddings");
    return { text: p.trace.vocabulary_size === 0 ? "embeddings" : "embeddings = embedding_table[ids]", shapes: `[${rows},${cols}]` };
  },
  stage: (p) => (
    <>
      <Show p={p} name="embeddings" cursor={{ i: p.sel.i, e: p.sel.e }} />
      {isCross(p.trace) && <Show p={p} name="embeddings_2" cursor={{ j: p.sel.j, e: p.sel.e }} />}
    </>
  ),
  worked: (p) => {
    const second = p.sel.on === "embeddings_2";
    const grid = gridOf(p.trace, second ? "embeddings_2" : "embeddings");
    const place = second ? p.sel.j : p.sel.i;
    const label = second ? p.trace.key_labels[place]! : word(p, place);
    const id = second ? p.trace.ids_2[place] : p.trace.ids[place];
    return (
      <>
        <Heading>{second ? "embeddings_2" : "embeddings"}(<Word>{label}</Word>), number {p.sel.e + 1}: {fixed(at(grid, place, p.sel.e))}</Heading>
        {id !== undefined && p.trace.vocabulary_size > 0 && (
          <p><Word>{label}</Word> has the id {id}: its embedding is row {id} of the table, counted from 0. Its {grid.cols} numbers are all that is known of the word from here on.</p>
        )}
      </>
    );
  },
};

export const positions: Step = {
  id: "positions",
  name: "Places",
  title: "Places are added to the embeddings",
  perHead: false,
  when: (trace) => "positions" in trace.tensors,
  text: () => (
    <p>
      Attention does not know in which order words stand. So each place has a row of its own, sines and cosines of ever longer waves (Vaswani
      et al. 2017, section 3.5), and it is added. The place t of the first word is 0.
    </p>
  ),
  formula: (p) => {
    const { rows, cols } = gridOf(p.trace, "inputs");
    return { text: "inputs = embeddings + positions", shapes: `[${rows},${cols}]` };
  },
  stage: (p) => (
    <>
      <Row p={p} of={[["", "embeddings"], ["+", "positions"], ["=", "inputs"]]} cursor={{ i: p.sel.i, e: p.sel.e }} />
      {p.trace.tensors.inputs_2 && <Show p={p} name="inputs_2" cursor={{ j: p.sel.j, e: p.sel.e }} />}
    </>
  ),
  worked: (p) => {
    const [i, e] = [p.sel.i, p.sel.e];
    const value = (name: string) => at(gridOf(p.trace, name), i, e);
    const wave = 2 * Math.floor(e / 2);
    return (
      <>
        <Heading>inputs(<Word>{word(p, i)}</Word>), number {e + 1}</Heading>
        <p class="formula">{fixed(value("embeddings"))} + {fixed(value("positions"))} = <output>{fixed(value("inputs"))}</output></p>
        <p>
          Its place is {i}, and this wave's is {e % 2 === 0 ? "sin" : "cos"}({i} / 10000<sup>{wave}/{gridOf(p.trace, "inputs").cols}</sup>) ={" "}
          {fixed(value("positions"))}.
        </p>
      </>
    );
  },
};
