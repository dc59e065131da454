import { at, fixed, gridOf, headsOf, isHidden, projectionColumn, rowOf } from "../grid";
import { Word } from "../term";
import { say } from "../words";
import { Colours } from "./colours";
import { Block } from "./block";
import { Heading, Product, Products, Show, Signs, key, productShapes, word } from "./step";
import type { Step } from "./step";
import { Several } from "./several";

export const context: Step = {
  id: "context",
  name: say.context.name,
  title: say.context.title,
  perHead: true,
  text: () => say.context.text,
  formula: (p) => {
    const values = gridOf(p.trace, "values", p.head);
    return { text: "context = weights values", shapes: productShapes(p.trace.labels.length, values.rows, values.cols) };
  },
  stage: (p) => {
    const d = Math.min(p.sel.d, gridOf(p.trace, "values", p.head).cols - 1);
    const key = p.state.hovered.j === undefined ? {} : { j: p.sel.j };
    return <Product p={p} result={["context", { i: p.sel.i, d }]} left={["weights", { i: p.sel.i, ...key }]} right={["values", { d, ...key }]} />;
  },
  legend: (p) => <><Signs /><Colours p={p} /></>,
  worked: (p) => {
    const values = gridOf(p.trace, "values", p.head);
    const weights = rowOf(gridOf(p.trace, "weights", p.head), p.sel.i);
    const d = Math.min(p.sel.d, values.cols - 1);
    const total = at(gridOf(p.trace, "context", p.head), p.sel.i, d);
    const seen = Array.from(weights, (_, j) => j).filter((j) => !isHidden(p.trace, p.sel.i, j));
    return (
      <>
        <Heading>context(<Word>{word(p, p.sel.i)}</Word>), {say.number(d + 1)}: {fixed(total)}</Heading>
        <p>{say.context.share(d + 1, word(p, p.sel.i))}</p>
        <Products names={[say.weight, say.value]} total={total} terms={seen.map((j) => ({ label: key(p, j), a: weights[j]!, b: at(values, j, d) }))} />
        {!p.trace.tensors.output && <Block />}
      </>
    );
  },
};

export const heads: Step = {
  id: "heads",
  name: say.heads.name,
  title: say.heads.title,
  perHead: false,
  when: (trace) => "concat_heads" in trace.tensors,
  text: (p) => say.heads.text(headsOf(p.trace)),
  formula: (p) => {
    const { rows, cols } = gridOf(p.trace, "concat_heads");
    return { text: say.heads.formula, shapes: `[${rows},${cols}]` };
  },
  stage: (p) => <Show p={p} name="concat_heads" cursor={{ i: p.sel.i, c: p.sel.c }} />,
  worked: (p) => {
    const size = gridOf(p.trace, "context", 0).cols;
    const head = Math.floor(p.sel.c / size);
    return (
      <>
        <Heading>concat_heads(<Word>{word(p, p.sel.i)}</Word>), {say.number(p.sel.c + 1)}: {fixed(at(gridOf(p.trace, "concat_heads"), p.sel.i, p.sel.c))}</Heading>
        <p>{say.heads.part({ place: (p.sel.c % size) + 1, head, heads: headsOf(p.trace), size })}</p>
        <p class="buttons">
          <button type="button" onClick={() => { p.dispatch({ do: "head", head }); p.dispatch({ do: "lock", cursor: { d: p.sel.c % size } }); p.dispatch({ do: "step", step: "context" }); }}>
            {say.heads.goTo(head)}
          </button>
        </p>
        <Several p={p} />
      </>
    );
  },
};

export const output: Step = {
  id: "output",
  name: say.output.name,
  title: say.output.title,
  perHead: false,
  when: (trace) => "output" in trace.tensors,
  text: () => <p>{say.output.text}</p>,
  formula: (p) => {
    const joined = gridOf(p.trace, "concat_heads");
    return { text: `output = concat_heads w_output${p.trace.weights_in_out ? "" : "ᵀ"}`, shapes: productShapes(joined.rows, joined.cols, gridOf(p.trace, "output").cols) };
  },
  stage: (p) => <Product p={p} result={["output", { i: p.sel.i, e: p.sel.e }]} left={["concat_heads", { i: p.sel.i }]} right={["w_output", { e: p.sel.e }]} />,
  worked: (p) => {
    const total = at(gridOf(p.trace, "output"), p.sel.i, p.sel.e);
    const w = projectionColumn(p.trace, gridOf(p.trace, "w_output"), p.sel.e);
    return (
      <>
        <Heading>output(<Word>{word(p, p.sel.i)}</Word>), {say.number(p.sel.e + 1)}: {fixed(total)}</Heading>
        <Products
          names={[say.output.joined, "w_output"]} total={total}
          terms={Array.from(rowOf(gridOf(p.trace, "concat_heads"), p.sel.i), (a, c) => ({ label: String(c + 1), a, b: w[c]! }))}
        />
        <Block />
      </>
    );
  },
};
