// What a step of the lesson is, and the pieces that steps share.
import type { ComponentChildren } from "preact";
import type { Trace } from "../engine";
import { at, fixed, gridOf, isHidden } from "../grid";
import { Matrix, largestOf } from "../matrix";
import { topOf } from "../state";
import type { Action, Axis, Cursor, Selection, State } from "../state";
import { Operand, Together } from "../together";
import { say } from "../words";

export interface StepProps {
  state: State;
  trace: Trace;
  head: number;
  sel: Selection;
  dispatch: (action: Action) => void;
}

export interface Step {
  id: string; // in the URL's hash
  name: string; // on the rail
  title: string;
  perHead: boolean; // each head takes it by itself
  when?: (trace: Trace) => boolean; // default: always
  text: (p: StepProps) => ComponentChildren; // what happens, in words
  formula?: (p: StepProps) => { text: string; shapes: string };
  stage: (p: StepProps) => ComponentChildren; // the matrices
  legend?: (p: StepProps) => ComponentChildren; // what their colours mean; default: <Signs />
  worked: (p: StepProps) => ComponentChildren; // how the selected number comes about
  exercise?: (p: StepProps) => ComponentChildren;
}

export const word = (p: StepProps, i: number): string => p.trace.labels[i]!;
export const key = (p: StepProps, j: number): string => p.trace.key_labels[j]!;

const shape = (rows: number, cols: number): string => `[${rows},${cols}]`;
export const productShapes = (rows: number, inner: number, cols: number): string =>
  `${shape(rows, cols)} = ${shape(rows, inner)} ${shape(inner, cols)}`;

// What the rows and columns of each tensor stand for. A projection's matrix stands as [out,in] or as [in,out].
const axesOf = (trace: Trace, name: string): [Axis, Axis] => {
  const known: Record<string, [Axis, Axis]> = {
    embeddings: ["i", "e"], embeddings_2: ["j", "e"], positions: ["i", "e"], inputs: ["i", "e"], inputs_2: ["j", "e"],
    queries: ["i", "d"], keys: ["j", "d"], values: ["j", "d"], context: ["i", "d"], concat_heads: ["i", "c"], output: ["i", "e"],
  };
  if (known[name]) return known[name]!;
  if (name.startsWith("w_")) {
    const [out, into]: [Axis, Axis] = name === "w_output" ? ["e", "c"] : ["d", "e"];
    return trace.weights_in_out ? [into, out] : [out, into];
  }
  return ["i", "j"];
};

interface ShowProps {
  p: StepProps;
  name: string;
  cursor: Cursor; // what is highlighted in it
  rows?: Axis; // where the rows stand for the keys' words and not for the queries'
  trace?: Trace; // default: the present one
  title?: string;
  largest?: number; // as Matrix has it
}

const gridIn = (p: StepProps, name: string, trace = p.trace) => gridOf(trace, name, Math.min(p.head, (trace.tensors[name]!.shape.at(-3) ?? 1) - 1));

// A tensor of the trace with its words.
export function Show({ p, name, cursor, rows, trace = p.trace, title, largest }: ShowProps) {
  const [ofRows, cols] = axesOf(trace, name);
  const axis = rows ?? ofRows;
  const labels = axis === "i" ? trace.labels : axis === "j" ? trace.key_labels : undefined;
  const pairs = cols === "j";
  return (
    <Matrix
      name={name} title={title} grid={gridIn(p, name, trace)} share={name === "weights" ? p.state.scale : undefined} top={topOf(p.state)} largest={largest} cursor={cursor}
      rows={{ axis, labels }} cols={{ axis: cols, labels: pairs ? trace.key_labels : undefined }}
      hidden={pairs && name !== "scores" && name !== "scaled_scores" ? (i, j) => isHidden(trace, i, j) : undefined}
      onHover={(hovered) => p.dispatch({ do: "hover", cursor: hovered })}
      onLock={(locked) => p.dispatch({ do: "lock", cursor: locked })}
    />
  );
}

type Shown = [name: string, cursor: Cursor];
// A matrix, and the two that it is the product of.
export const Product = ({ p, result, left, right }: { p: StepProps; result: Shown; left: Shown; right: Shown }) => (
  <Together>
    <Operand><Show p={p} name={result[0]} cursor={result[1]} /></Operand>
    <div class="stack">
      <Operand sign="="><Show p={p} name={left[0]} cursor={left[1]} /></Operand>
      <Operand sign="×"><Show p={p} name={right[0]} cursor={right[1]} /></Operand>
    </div>
  </Together>
);
// Matrices with one selection, each with the sign before it. A colour is the same number in all of them: where scores are
// scaled, they grow paler.
export const Row = ({ p, of, cursor }: { p: StepProps; of: [sign: string, name: string][]; cursor: Cursor }) => {
  const largest = Math.max(...of.map(([, name]) => largestOf(gridIn(p, name))));
  return <Together>{of.map(([sign, name]) => <Operand key={name} sign={sign}><Show p={p} name={name} cursor={cursor} largest={largest} /></Operand>)}</Together>;
};

// What the colours of numbers below and above 0 mean.
export const Signs = () => <p class="key quiet"><i class="negative" /> {say.legend.below} <i class="positive" /> {say.legend.above}</p>;

export interface Term {
  label: string;
  a: number;
  b: number;
}

// A sum of products, each to be seen; of more the largest, and what all others add.
export function Products({ terms, names, total, onHover, axis, most = 64 }: {
  terms: Term[];
  names: [string, string]; // what a and b are
  total: number;
  axis?: Axis;
  onHover?: (cursor: Cursor) => void;
  most?: number;
}) {
  const ordered = terms.map((term, place) => ({ ...term, place, product: term.a * term.b }));
  const sorted = terms.length <= most ? ordered : [...ordered].sort((x, y) => Math.abs(y.product) - Math.abs(x.product));
  const [shown, rest] = [sorted.slice(0, most), sorted.slice(most)];
  const largest = Math.max(...shown.map(({ product }) => Math.abs(product)), 1e-30);
  return (
    <div class="products">
      <table onPointerLeave={() => onHover?.({})}>
        <thead><tr><th scope="col"><span class="sr">{say.products.number}</span></th><th scope="col">{names[0]}</th><th scope="col">{names[1]}</th><th scope="col">{say.products.product}</th><th aria-hidden="true" /></tr></thead>
        <tbody>
          {shown.map(({ label, a, b, product, place }) => (
            <tr key={place} onPointerEnter={axis && (() => onHover?.({ [axis]: place }))}>
              <th scope="row"><bdi>{label}</bdi></th><td>{fixed(a)}</td><td>{fixed(b)}</td><td>{fixed(product)}</td>
              <td class="bar" aria-hidden="true"><i class={product < 0 ? "negative" : undefined} style={{ width: `${(Math.abs(product) / largest) * 100}%` }} /></td>
            </tr>
          ))}
          {rest.length > 0 && <tr class="rest"><th scope="row" colSpan={3}>{say.products.smaller(rest.length)}</th><td>{fixed(rest.reduce((sum, { product }) => sum + product, 0))}</td><td aria-hidden="true" /></tr>}
        </tbody>
      </table>
      <p class="total">{say.sum} <output>{fixed(total)}</output></p>
    </div>
  );
}

export const Heading = ({ children }: { children: ComponentChildren }) => <h3 aria-live="polite">{children}</h3>;

// How the selected query shares its attention, the largest share first.
export function Shares({ p }: { p: StepProps }) {
  const weights = gridOf(p.trace, "weights", p.head);
  const seen = Array.from({ length: weights.cols }, (_, j) => j).filter((j) => !isHidden(p.trace, p.sel.i, j));
  const keys = seen.sort((a, b) => at(weights, p.sel.i, b) - at(weights, p.sel.i, a));
  return (
    <ul class="shares">
      {keys.slice(0, 24).map((j) => (
        <li key={j} class={j === p.sel.j ? "on" : undefined} onPointerEnter={() => p.dispatch({ do: "hover", cursor: { ...p.state.hovered, i: p.sel.i, j } })}>
          <bdi>{key(p, j)}</bdi>
          <span class="bar" aria-hidden="true"><i style={{ width: `${at(weights, p.sel.i, j) * 100}%` }} /></span>
          <output>{fixed(at(weights, p.sel.i, j))}</output>
        </li>
      ))}
      {keys.length > 24 && <li class="quiet">{say.moreKeys(keys.length - 24)}</li>}
      {keys.length < weights.cols && <li class="quiet">{say.hiddenKeys(weights.cols - keys.length, weights.cols)}</li>}
    </ul>
  );
}
