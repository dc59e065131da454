import { at, fixed, gridOf, isCross } from "../grid";
import { roam, tabOf } from "../roving";
import { Word } from "../term";
import { say } from "../words";
import { sayLesson } from "../words/lesson";
import { Heading, Row, Show, word } from "./step";
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
  when: (trace) => "embeddings" in trace.tensors,
  name: sayLesson.words.name,
  title: sayLesson.words.title,
  perHead: false,
  text: (p) => <p>{p.trace.vocabulary_size > p.trace.tokens.length ? sayLesson.words.given(p.trace.vocabulary_size) : sayLesson.words.made}</p>,
  stage: (p) => (
    <>
      <Ids p={p} tokens={p.trace.tokens} ids={p.trace.ids} axis="i" />
      {p.trace.ids_2.length > 0 && (
        <>
          <p>{sayLesson.words.second}</p>
          <Ids p={p} tokens={p.trace.tokens_2} ids={p.trace.ids_2} axis="j" />
        </>
      )}
      {isCross(p.trace) && p.trace.ids_2.length === 0 && <p>{sayLesson.words.numbers(p.trace.key_labels.length)}</p>}
    </>
  ),
  legend: () => null,
  worked: (p) => {
    const id = p.trace.ids[p.sel.i]!;
    const same = p.trace.ids.filter((other) => other === id).length;
    const sorted = p.trace.tokens.filter((_, place) => p.trace.ids.indexOf(p.trace.ids[place]!) === place).map((token) => ({ token, id: p.trace.ids[p.trace.tokens.indexOf(token)]! }));
    return (
      <>
        <Heading>{sayLesson.words.hasId(word(p, p.sel.i), id)}</Heading>
        {same > 1 && <p>{sayLesson.words.same(same)}</p>}
        <table class="plain vocabulary">
          <thead><tr><th scope="col">{sayLesson.words.id}</th><th scope="col">{sayLesson.words.word}</th></tr></thead>
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
  when: (trace) => "embeddings" in trace.tensors,
  name: sayLesson.embeddings.name,
  title: sayLesson.embeddings.title,
  perHead: false,
  text: (p) => (p.trace.vocabulary_size === 0 ? sayLesson.embeddings.given : sayLesson.embeddings.drawn(String(p.trace.made.seed))),
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
        <Heading>{second ? "embeddings_2" : "embeddings"}(<Word>{label}</Word>), {say.number(p.sel.e + 1)}: {fixed(at(grid, place, p.sel.e))}</Heading>
        {id !== undefined && p.trace.vocabulary_size > 0 && (
          <p>{sayLesson.embeddings.row(label, id, grid.cols)}</p>
        )}
      </>
    );
  },
};

export const positions: Step = {
  id: "positions",
  name: sayLesson.positions.name,
  title: sayLesson.positions.title,
  perHead: false,
  when: (trace) => "positions" in trace.tensors,
  text: () => sayLesson.positions.text,
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
        <Heading>inputs(<Word>{word(p, i)}</Word>), {say.number(e + 1)}</Heading>
        <p class="formula">{fixed(value("embeddings"))} + {fixed(value("positions"))} = <output>{fixed(value("inputs"))}</output></p>
        <p>{sayLesson.positions.wave(i, e % 2 === 0 ? "sin" : "cos", `${wave}/${gridOf(p.trace, "inputs").cols}`, fixed(value("positions")))}</p>
      </>
    );
  },
};
