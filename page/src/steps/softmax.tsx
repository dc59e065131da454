import { at, entropyOf, fixed, gridOf, isHidden, logitsOf } from "../grid";
import { Word } from "../term";
import { Operand, Together } from "../together";
import { say } from "../words";
import { Before, EntropyBefore } from "./picture";
import { Colours } from "./colours";
import { Heading, Show, Signs, key, word } from "./step";
import type { Step, StepProps } from "./step";

const logitName = (p: StepProps): string => (p.trace.tensors.logits ? "logits" : "scaled_scores");
const mostRows = 24;

// Each key's exponential, and the sum that they are divided by.
function Exponentials({ p }: { p: StepProps }) {
  const logits = logitsOf(p.trace, p.head);
  const weights = gridOf(p.trace, "weights", p.head);
  const keys = p.trace.key_labels.map((_, j) => j);
  const seen = keys.filter((j) => !isHidden(p.trace, p.sel.i, j));
  const largest = Math.max(...seen.map((j) => at(logits, p.sel.i, j)));
  const power = (j: number): number => Math.exp(at(logits, p.sel.i, j) - largest);
  const sum = seen.reduce((total, j) => total + power(j), 0);
  const shown = keys.length <= mostRows ? keys : [...seen].sort((a, b) => power(b) - power(a)).slice(0, mostRows);
  const rowSum = keys.reduce((total, j) => total + at(weights, p.sel.i, j), 0);
  return (
    <>
      <p class="formula">
        e = exp({logitName(p)} {largest < 0 ? "+" : "−"} {fixed(Math.abs(largest))})<br />
        {say.softmax.weightIs(fixed(sum))}
      </p>
      <table class="plain">
        <thead><tr><th scope="col">{say.key}</th><th scope="col">{logitName(p) === "logits" ? say.softmax.logit : say.softmax.scaledScore}</th><th scope="col">e</th><th scope="col">{say.weight}</th></tr></thead>
        <tbody>
          {shown.map((j) => (
            <tr key={j} class={j === p.sel.j ? "on" : undefined} onPointerEnter={() => p.dispatch({ do: "hover", cursor: { i: p.sel.i, j } })}>
              <th scope="row"><bdi>{key(p, j)}</bdi></th>
              <td>{isHidden(p.trace, p.sel.i, j) ? "-inf" : fixed(at(logits, p.sel.i, j))}</td>
              <td>{isHidden(p.trace, p.sel.i, j) ? "0" : fixed(power(j))}</td>
              <td>{isHidden(p.trace, p.sel.i, j) ? say.hidden : fixed(at(weights, p.sel.i, j))}</td>
            </tr>
          ))}
          <tr class="sum"><th scope="row">{say.sum}</th><td /><td>{fixed(sum)}</td><td>{fixed(rowSum)}</td></tr>
        </tbody>
      </table>
      {shown.length < keys.length && <p class="quiet">{say.moreKeys(keys.length - shown.length)}</p>}
    </>
  );
}

const leastNormal = 2 ** -126; // smaller f32 have fewer digits
// Four digits of what may be very large.
const figures = (value: number): string => (value < 1e4 ? value.toPrecision(4) : value.toExponential(3));

// The selected key beside the row's largest, or where it is the largest, that beside the next.
function WhyExp({ p }: { p: StepProps }) {
  const says = say.softmax.why;
  const logit = (j: number): number => at(logitsOf(p.trace, p.head), p.sel.i, j);
  const weight = (j: number): number => at(gridOf(p.trace, "weights", p.head), p.sel.i, j);
  const falling = p.trace.key_labels.map((_, j) => j).filter((j) => !isHidden(p.trace, p.sel.i, j)).sort((a, b) => logit(b) - logit(a));
  const first = falling[0]!;
  const second = p.sel.j !== first && falling.includes(p.sel.j) ? p.sel.j : falling[1];
  if (second === undefined) return <p>{says.lone(word(p, p.sel.i))}</p>;
  const difference = logit(first) - logit(second);
  const [by, power] = [fixed(difference), figures(Math.exp(difference))];
  return (
    <>
      <p>{says.example(word(p, p.sel.i), [key(p, first), fixed(logit(first))], [key(p, second), fixed(logit(second))], by)}</p>
      <p>{weight(second) >= leastNormal ? says.ratio(by, power, figures(weight(first)), figures(weight(second)), figures(weight(first) / weight(second))) : says.vanished(by, power)}</p>
    </>
  );
}

export const softmax: Step = {
  id: "softmax",
  name: say.softmax.name,
  title: say.softmax.title,
  perHead: true,
  text: () => say.softmax.text,
  formula: (p) => ({ text: `weights = softmax(${logitName(p)})`, shapes: `[${p.trace.labels.length},${p.trace.key_labels.length}]` }),
  stage: (p) => (
    <>
      {p.state.before && (
        <>
          <Together>
            <Operand><Show p={p} name="weights" cursor={{ i: p.sel.i, j: p.sel.j }} /></Operand>
            <Operand><Before p={p} /></Operand>
          </Together>
          <EntropyBefore p={p} />
        </>
      )}
      <Together>
        <Operand><Show p={p} name={logitName(p)} cursor={{ i: p.sel.i, j: p.sel.j }} /></Operand>
        {!p.state.before && <Operand sign="→"><Show p={p} name="weights" cursor={{ i: p.sel.i, j: p.sel.j }} /></Operand>}
      </Together>
      <Entropies p={p} />
    </>
  ),
  legend: (p) => <><Signs /><Colours p={p} /></>,
  worked: (p) => (
    <>
      <Heading>weights(<Word>{word(p, p.sel.i)}</Word>, <Word>{key(p, p.sel.j)}</Word>): {isHidden(p.trace, p.sel.i, p.sel.j) ? say.hidden : fixed(at(gridOf(p.trace, "weights", p.head), p.sel.i, p.sel.j))}</Heading>
      <Exponentials p={p} />
      <details class="growth why-exp">
        <summary>{say.softmax.why.title}</summary>
        <WhyExp p={p} />
        <p>{say.softmax.why.rule}</p>
      </details>
    </>
  ),
};

// How spread out each query's weights are.
function Entropies({ p }: { p: StepProps }) {
  const entropy = Array.from(entropyOf(p.trace, p.head)).slice(0, mostRows);
  return (
    <figure class="matrix">
      <figcaption><b>{say.entropy}</b> <span class="shape">{say.nats}</span></figcaption>
      <table class="plain entropies">
        <thead><tr><th scope="col">{say.query}</th><th scope="col">{say.entropy}</th><th scope="col">{say.softmax.asIfOver}</th></tr></thead>
        <tbody>
          {entropy.map((nats, i) => (
            <tr key={i} class={i === p.sel.i ? "on" : undefined} onClick={() => p.dispatch({ do: "lock", cursor: { i } })}>
              <th scope="row"><bdi>{word(p, i)}</bdi></th><td>{fixed(nats)}</td><td>{say.softmax.keys(Math.exp(nats).toFixed(2))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}
