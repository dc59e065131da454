import { Fragment } from "preact";
import { at, fixed, gridOf, inputName, isCross, isMultiHead, projectionColumn, rowOf, secondInputName } from "../grid";
import { Term } from "../glossary";
import { Operand, Together } from "../together";
import { Heading, Products, Show, Word, productShapes } from "./step";
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
  name: "q, k, v",
  title: "Embeddings become queries, keys and values",
  perHead: true,
  text: (p) => (
    <p>
      Three matrices turn each embedding into a <Term of="query" /> (what it looks for), a <Term of="key" /> (what it offers) and a{" "}
      <Term of="value" /> (what it hands over). {isCross(p.trace) && "The queries come from the first sequence, the keys and values from the second. "}
      {p.trace.made.weights === "linear" ? "The matrices are drawn as torch.nn.Linear draws its own, around 0." : "The matrices are drawn between 0 and 1."}
      {isMultiHead(p.trace) && " Each head has matrices of its own."}
    </p>
  ),
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
        <Heading>{one.result}(<Word>{label}</Word>), number {d + 1}: {fixed(total)}</Heading>
        <p>
          The embedding of <Word>{label}</Word> times {p.trace.weights_in_out ? "column" : "row"} {d + 1} of {one.matrix}, added up:
        </p>
        <Products
          names={[one.input, one.matrix]} total={total}
          terms={Array.from(x, (a, e) => ({ label: String(e + 1), a, b: w[e]! }))}
        />
      </>
    );
  },
};
