import { Fragment } from "preact";
import { at, fixed, gridOf, inputName, isCross, isMultiHead, projectionColumn, rowOf, secondInputName } from "../grid";
import { Word } from "../term";
import { Operand, Together } from "../together";
import { say } from "../words";
import { sayLesson } from "../words/lesson";
import { Heading, Products, Show, productShapes } from "./step";
import type { Step, StepProps } from "./step";

interface Projection {
  result: string;
  matrix: string;
  input: string;
  axis: "i" | "j"; // of its words
}

const projectionsOf = (p: StepProps): Projection[] => [
  { result: "queries", matrix: "w_query", input: inputName(p.trace), axis: "i" },
  { result: "keys", matrix: "w_key", input: secondInputName(p.trace), axis: "j" },
  { result: "values", matrix: "w_value", input: secondInputName(p.trace), axis: "j" },
];

// The one that was touched, by its result or its matrix; at first the queries.
const touched = (p: StepProps): Projection =>
  projectionsOf(p).find(({ result, matrix }) => p.sel.on === result || p.sel.on === matrix) ?? projectionsOf(p)[0]!;

// Without a second sentence one word is followed through its three parts: the keys' row is then the query's own, unless a
// key was asked for.
const rowIn = (p: StepProps, { axis }: Projection): number =>
  axis === "i" || (!isCross(p.trace) && p.state.locked.j === undefined && p.state.hovered.j === undefined) ? p.sel.i : p.sel.j;
const featureIn = (p: StepProps, { result }: Projection): number => Math.min(p.sel.d, gridOf(p.trace, result, p.head).cols - 1);

export const projections: Step = {
  id: "projections",
  when: (trace) => "w_query" in trace.tensors,
  name: sayLesson.projections.name,
  title: sayLesson.projections.title,
  perHead: true,
  text: (p) => sayLesson.projections.text({ cross: isCross(p.trace), linear: p.trace.made.weights === "linear", several: isMultiHead(p.trace) }),
  formula: (p) => {
    const { result, matrix, input } = touched(p);
    const [x, y] = [gridOf(p.trace, input), gridOf(p.trace, result, p.head)];
    return { text: `${result} = ${input} ${matrix}${p.trace.weights_in_out ? "" : "ᵀ"}`, shapes: productShapes(x.rows, x.cols, y.cols) };
  },
  stage: (p) => {
    const one = touched(p);
    const d = featureIn(p, one);
    const all = projectionsOf(p);
    return (
      <Together as="projections">
        {all.map((each, place) => {
          const isTouched = each.result === one.result;
          const isFirst = all.findIndex(({ input }) => input === each.input) === place;
          const shared = isFirst && each.input === one.input ? one : each;
          return (
            <Fragment key={each.result}>
              <Operand name="result">
                <Show p={p} name={each.result} cursor={{ [each.axis]: rowIn(p, each), ...(isTouched ? { d } : {}) }} />
              </Operand>
              {isFirst && (
                <Operand sign="=" name={`input of-${all.filter(({ input }) => input === each.input).length}`}>
                  <Show p={p} name={each.input} rows={shared.axis} cursor={{ [shared.axis]: rowIn(p, shared) }} />
                </Operand>
              )}
              <Operand sign="×" name="by"><Show p={p} name={each.matrix} cursor={isTouched ? { d } : {}} /></Operand>
            </Fragment>
          );
        })}
      </Together>
    );
  },
  worked: (p) => {
    const one = touched(p);
    const [row, d] = [rowIn(p, one), featureIn(p, one)];
    const x = rowOf(gridOf(p.trace, one.input), row);
    const w = projectionColumn(p.trace, gridOf(p.trace, one.matrix, p.head), d);
    const total = at(gridOf(p.trace, one.result, p.head), row, d);
    const label = one.axis === "i" ? p.trace.labels[row]! : p.trace.key_labels[row]!;
    return (
      <>
        <Heading>{one.result}(<Word>{label}</Word>), {say.number(d + 1)}: {fixed(total)}</Heading>
        <p>{sayLesson.projections.times(label, p.trace.weights_in_out, d + 1, one.matrix)}</p>
        <Products
          names={[one.input, one.matrix]} total={total}
          terms={Array.from(x, (a, e) => ({ label: String(e + 1), a, b: w[e]! }))}
        />
      </>
    );
  },
};
