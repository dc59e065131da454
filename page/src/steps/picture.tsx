import { at, entropyOf, fixed, gridOf, headsOf, isCross, isHidden, isMultiHead } from "../grid";
import { shareColour, shareInk } from "../colour";
import { Exercise } from "../exercise";
import { say } from "../words";
import type { Picture } from "../picture";
import { roam, tabOf } from "../roving";
import { difference, firstStep, topOf } from "../state";
import { Operand, Together } from "../together";
import { savePng, saveSvg } from "../picture";
import { Colours } from "./colours";
import { Several } from "./several";
import { Heading, Shares, Show, word } from "./step";
import type { Step, StepProps } from "./step";

const nameOf = (p: StepProps): string =>
  isMultiHead(p.trace) ? `${p.trace.made.text}, ${say.head(p.head)}` : String(p.trace.made.text);

// The words that are looked at, each on the colour of its weight. Without a second sentence they are the queries too: a
// word that is chosen becomes the query.
function Sentence({ p }: { p: StepProps }) {
  const weights = gridOf(p.trace, "weights", p.head);
  const axis = isCross(p.trace) ? "j" : "i";
  const top = topOf(p.state);
  return (
    <p class={p.trace.key_labels.length > 40 ? "sentence long" : "sentence"} role="group" aria-label={say.picture.words} onKeyDown={roam}>
      {p.trace.key_labels.map((label, j) => {
        const share = at(weights, p.sel.i, j);
        const hidden = isHidden(p.trace, p.sel.i, j);
        const shown = p.trace.tokens_2[j] ?? (isCross(p.trace) ? label : p.trace.tokens[j]);
        return (
          <button
            type="button" key={j} class={hidden ? "hidden" : undefined} aria-pressed={p.sel[axis] === j} tabIndex={tabOf(p.sel[axis] === j)}
            style={hidden ? undefined : { background: shareColour(share / top, p.state.scale), color: shareInk(share / top, p.state.scale) }}
            aria-label={`${shown === label ? label : `${shown} (${label})`}, ${hidden ? say.hidden : fixed(share)}`} title={hidden ? say.hidden : fixed(share)}
            onClick={() => p.dispatch({ do: "lock", cursor: { [axis]: j } })}
          >
            <bdi>{shown}</bdi>
          </button>
        );
      })}
    </p>
  );
}

// Where the numbers come from: but for the opening's head nothing of a lesson is trained.
const Origin = ({ p }: { p: StepProps }) => (
  <p class="origin">
    {p.trace.model !== undefined ? say.picture.trained : !p.trace.preset ? say.picture.random : p.trace.vocabulary_size === 0 ? say.picture.given : say.picture.drawn}
  </p>
);

export const picture: Step = {
  id: firstStep,
  name: say.picture.name,
  title: say.picture.title,
  perHead: true,
  text: (p) => <>{say.picture.text(isCross(p.trace))}{isCross(p.trace) && say.picture.cross}</>,
  stage: (p) => (
    <>
      <div class="shown">
        <p>{say.picture.looksAt(word(p, p.sel.i), isMultiHead(p.trace) ? p.head : null)}</p>
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
        <Heading>{say.picture.where(word(p, p.sel.i))}</Heading>
        <Shares p={p} />
        <p class="quiet">{say.picture.entropy(fixed(entropy), fixed(Math.exp(entropy)))}</p>
        <p class="buttons">
          <button type="button" onClick={() => saveSvg(drawingOf(p))}>{say.picture.saveAs("SVG")}</button>
          <button type="button" onClick={() => void savePng(drawingOf(p))}>{say.picture.saveAs("PNG")}</button>
        </p>
        <p class="quiet">{say.picture.noExplanation}</p>
        <Several p={p} />
      </>
    );
  },
  exercise: (p) =>
    headsOf(p.trace) > 1 && (
      <Exercise question={say.picture.question} options={say.picture.options} right={0}>
        {say.picture.answer(headsOf(p.trace))}
      </Exercise>
    ),
};

const drawingOf = (p: StepProps): Picture => ({
  title: nameOf(p), grid: gridOf(p.trace, "weights", p.head), rows: p.trace.labels, cols: p.trace.key_labels, hidden: (i, j) => isHidden(p.trace, i, j), scale: p.state.scale, top: topOf(p.state),
});

// What was kept to compare with: the same map, of before.
export const Before = ({ p }: { p: StepProps }) => (
  <div class="before">
    <Show p={p} name="weights" title={say.picture.before(difference(p.state.before!, p.trace))} trace={p.state.before!} cursor={{ i: p.sel.i, j: p.sel.j }} />
  </div>
);

export function EntropyBefore({ p }: { p: StepProps }) {
  const trace = p.state.before!;
  const head = Math.min(p.head, headsOf(trace) - 1);
  const i = Math.min(p.sel.i, trace.labels.length - 1);
  const entropy = entropyOf(trace, head)[i]!;
  const now = entropyOf(p.trace, p.head)[p.sel.i]!;
  return <p class="entropy-before">{say.picture.entropyBefore(trace.labels[i]!, fixed(entropy), fixed(now))}</p>;
}
