import { at, entropyOf, fixed, gridOf, headsOf, isCross, isHidden, isMultiHead } from "../grid";
import { shareColour, shareInk } from "../colour";
import { Exercise } from "../exercise";
import { Term } from "../glossary";
import type { Picture } from "../picture";
import { roam, tabOf } from "../roving";
import { difference, firstStep, topOf } from "../state";
import { Operand, Together } from "../together";
import { savePng, saveSvg } from "../picture";
import { Colours } from "./colours";
import { Heading, Shares, Show, Word, word } from "./step";
import type { Step, StepProps } from "./step";

const nameOf = (p: StepProps): string =>
  isMultiHead(p.trace) ? `${p.trace.made.text}, head ${p.head}` : String(p.trace.made.text);

// The words that are looked at, each on the colour of its weight. Without a second sentence they are the queries too: a
// word that is chosen becomes the query.
function Sentence({ p }: { p: StepProps }) {
  const weights = gridOf(p.trace, "weights", p.head);
  const axis = isCross(p.trace) ? "j" : "i";
  const top = topOf(p.state);
  return (
    <p class={p.trace.key_labels.length > 40 ? "sentence long" : "sentence"} role="group" aria-label="Words" onKeyDown={roam}>
      {p.trace.key_labels.map((label, j) => {
        const share = at(weights, p.sel.i, j);
        const hidden = isHidden(p.trace, p.sel.i, j);
        return (
          <button
            type="button" key={j} class={hidden ? "hidden" : undefined} aria-pressed={p.sel[axis] === j} tabIndex={tabOf(p.sel[axis] === j)}
            style={hidden ? undefined : { background: shareColour(share / top, p.state.scale), color: shareInk(share / top, p.state.scale) }}
            aria-label={`${label}, ${hidden ? "hidden" : fixed(share)}`} title={hidden ? "hidden" : fixed(share)}
            onClick={() => p.dispatch({ do: "lock", cursor: { [axis]: j } })}
          >
            <bdi>{p.trace.tokens_2[j] ?? (isCross(p.trace) ? label : p.trace.tokens[j])}</bdi>
          </button>
        );
      })}
    </p>
  );
}

// Where the numbers come from: nothing of a lesson is trained.
const Origin = ({ p }: { p: StepProps }) => (
  <p class="origin">
    {!p.trace.preset
      ? "These weights are made of random numbers: nothing was trained. They show how attention is computed, not what a model has learned."
      : p.trace.vocabulary_size === 0
        ? "These weights are made of the document's own numbers: its embeddings are written down there, its matrices drawn at random. Nothing was trained."
        : "These weights are made of the document's own numbers, which it draws at random: nothing was trained."}
  </p>
);

export const picture: Step = {
  id: firstStep,
  name: "Picture",
  title: "Who attends to whom",
  perHead: true,
  text: (p) => (
    <p>
      Each row is a <Term of="query" />: how a word shares its attention among the <Term of="key">keys</Term>, the columns. A row's{" "}
      <Term of="weight">weights</Term> sum to 1.{isCross(p.trace) && " The rows are the first sequence's, the columns the second's."} Touch any
      number; the steps show where it comes from.
    </p>
  ),
  stage: (p) => (
    <>
      <div class="shown">
        <p><Word>{word(p, p.sel.i)}</Word> looks at{isMultiHead(p.trace) && `, in head ${p.head}`}</p>
        <Sentence p={p} />
        <Colours p={p} />
        <Origin p={p} />
      </div>
      <Together>
        <Operand><Show p={p} name="weights" cursor={{ i: p.sel.i, j: p.sel.j }} /></Operand>
        {p.state.before && <Operand><Before p={p} /></Operand>}
      </Together>
      {p.state.before && <EntropyBefore p={p} />}
    </>
  ),
  legend: () => null,
  worked: (p) => {
    const entropy = entropyOf(p.trace, p.head)[p.sel.i]!;
    return (
      <>
        <Heading>Where <Word>{word(p, p.sel.i)}</Word> looks</Heading>
        <Shares p={p} />
        <p class="quiet">
          <Term of="entropy" /> {fixed(entropy)} nats: as if over {fixed(Math.exp(entropy))} keys.
        </p>
        <p class="buttons">
          <button type="button" onClick={() => saveSvg(drawingOf(p))}>Save as SVG</button>
          <button type="button" onClick={() => void savePng(drawingOf(p))}>Save as PNG</button>
        </p>
        <p class="quiet">Weights say where a head reads from. They are not an explanation of what a model does by themselves.</p>
      </>
    );
  },
  exercise: (p) =>
    headsOf(p.trace) > 1 && (
      <Exercise
        question="All heads read the same words. Why do they look elsewhere?"
        options={["each has matrices of its own", "each reads other words", "each reads the one before it"]}
        right={0}
      >
        Each has its own w_query, w_key and w_value, so one word is {headsOf(p.trace)} different queries. Go through the heads' tabs: the words
        stay, the rows change.
      </Exercise>
    ),
};

const drawingOf = (p: StepProps): Picture => ({
  title: nameOf(p), grid: gridOf(p.trace, "weights", p.head), rows: p.trace.labels, cols: p.trace.key_labels, hidden: (i, j) => isHidden(p.trace, i, j), scale: p.state.scale, top: topOf(p.state),
});

// What was kept to compare with: the same map, of before.
export const Before = ({ p }: { p: StepProps }) => (
  <div class="before">
    <Show p={p} name="weights" title={`weights before (${difference(p.state.before!, p.trace)})`} trace={p.state.before!} cursor={{ i: p.sel.i, j: p.sel.j }} />
  </div>
);

export function EntropyBefore({ p }: { p: StepProps }) {
  const trace = p.state.before!;
  const head = Math.min(p.head, headsOf(trace) - 1);
  const i = Math.min(p.sel.i, trace.labels.length - 1);
  const entropy = entropyOf(trace, head)[i]!;
  const now = entropyOf(p.trace, p.head)[p.sel.i]!;
  return (
    <p class="entropy-before">
      <Term of="entropy" /> of <Word>{trace.labels[i]!}</Word>: {fixed(entropy)} nats before, {fixed(now)} now.
    </p>
  );
}
