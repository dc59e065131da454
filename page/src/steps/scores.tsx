import { argmax, at, entropyOf, fixed, gridOf, headsOf, isHidden, rowOf } from "../grid";
import { Exercise } from "../exercise";
import { difference } from "../state";
import { Word } from "../term";
import { say } from "../words";
import { Heading, Product, Products, Row, key, productShapes, word } from "./step";
import type { Step, StepProps } from "./step";

const Pair = ({ p, of }: { p: StepProps; of: string }) => (
  <>
    {of}(<Word>{word(p, p.sel.i)}</Word>, <Word>{key(p, p.sel.j)}</Word>)
  </>
);
const pairsShape = (p: StepProps): string => `[${p.trace.labels.length},${p.trace.key_labels.length}]`;
const pair = (p: StepProps, name: string): number => at(gridOf(p.trace, name, p.head), p.sel.i, p.sel.j);

// How far scores lie apart (their standard deviation, the median of 8 seeds) for the opening's first sentence, by how many
// numbers a query has: of weights whose mean is 0, and of the documents' uniform ones. page.test.mjs counts again.
const spreads = { sizes: [24, 96, 384], linear: [1.61, 3.21, 6.07], uniform: [83.09, 324.45, 1283.96] };

function Growth() {
  const { sizes, linear, uniform } = spreads;
  const [width, height, left, bottom] = [300, 150, 44, 24];
  const x = (size: number) => left + (Math.log(size / sizes[0]!) / Math.log(sizes[2]! / sizes[0]!)) * (width - left - 96);
  const y = (value: number) => 10 + (1 - Math.log10(value) / 3.3) * (height - bottom - 16);
  const line = (values: number[]) => values.map((value, n) => `${x(sizes[n]!)},${y(value)}`).join(" ");
  return (
    <details class="growth">
      <summary>{say.scale.whyRoot}</summary>
      <p>{say.scale.growth((linear[2]! / linear[0]!).toFixed(1), (uniform[2]! / uniform[0]!).toFixed(1))}</p>
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={say.scale.spread(sizes.join(", "), linear.join(", "), uniform.join(", "))}>
        {[1, 10, 100, 1000].map((value) => <g key={value}><line x1={left} x2={width - 96} y1={y(value)} y2={y(value)} class="grid" /><text x={left - 6} y={y(value)} text-anchor="end" dominant-baseline="central">{value}</text></g>)}
        {sizes.map((size) => <text key={size} x={x(size)} y={height - 8} text-anchor="middle">{size}</text>)}
        <polyline points={line(uniform)} /><text x={width - 90} y={y(uniform[2]!)} dominant-baseline="central">{say.scale.uniform}</text>
        <polyline points={line(linear)} /><text x={width - 90} y={y(linear[2]!)} dominant-baseline="central">{say.scale.mean0}</text>
      </svg>
    </details>
  );
}

export const scores: Step = {
  id: "scores",
  name: say.scores.name,
  title: say.scores.title,
  perHead: true,
  text: () => say.scores.text,
  formula: (p) => ({
    text: "scores = queries keysᵀ",
    shapes: productShapes(p.trace.labels.length, gridOf(p.trace, "queries", p.head).cols, p.trace.key_labels.length),
  }),
  stage: (p) => {
    const d = p.state.hovered.d ?? (p.sel.on === "queries" || p.sel.on === "keys" ? p.state.locked.d : undefined);
    const feature = d === undefined ? {} : { d };
    return <Product p={p} result={["scores", { i: p.sel.i, j: p.sel.j }]} left={["queries", { i: p.sel.i, ...feature }]} right={["keys", { j: p.sel.j, ...feature }]} />;
  },
  worked: (p) => {
    const q = rowOf(gridOf(p.trace, "queries", p.head), p.sel.i);
    const k = rowOf(gridOf(p.trace, "keys", p.head), p.sel.j);
    return (
      <>
        <Heading><Pair p={p} of="scores" />: {fixed(pair(p, "scores"))}</Heading>
        <p>{say.scores.times(word(p, p.sel.i), key(p, p.sel.j))}</p>
        <Products
          names={[say.query, say.key]} total={pair(p, "scores")} axis="d"
          terms={Array.from(q, (a, d) => ({ label: String(d + 1), a, b: k[d]! }))}
          onHover={(cursor) => p.dispatch({ do: "hover", cursor: { i: p.sel.i, j: p.sel.j, ...cursor } })}
        />
      </>
    );
  },
  exercise: (p) => {
    const weights = gridOf(p.trace, "weights", p.head);
    const seen = p.trace.key_labels.map((_, j) => j).filter((j) => !isHidden(p.trace, p.trace.focus, j));
    if (seen.length < 2) return null;
    const row = rowOf(weights, p.trace.focus);
    const best = argmax(row);
    const options = [...new Set([best, ...seen])].slice(0, 6).sort((a, b) => a - b);
    return (
      <Exercise
        question={say.scores.question(word(p, p.trace.focus))}
        options={options.map((j) => key(p, j))}
        right={options.indexOf(best)}
      >
        {say.scores.answer(fixed(row[best]!))}
      </Exercise>
    );
  },
};

// Of a softmax over these numbers, in nats.
const spread = (values: number[]): number => {
  const largest = Math.max(...values);
  const powers = values.map((x) => Math.exp(x - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.reduce((total, power) => total - (power > 0 ? (power / sum) * Math.log(power / sum) : 0), 0);
};

export const scale: Step = {
  id: "scale",
  name: say.scale.name,
  title: say.scale.title,
  perHead: true,
  text: (p) => (p.trace.made.scale === false ? say.scale.off : say.scale.on(p.trace.model !== undefined ? "trained" : p.trace.made.weights)),
  formula: (p) => {
    const { cols } = gridOf(p.trace, "queries", p.head);
    return {
      text: p.trace.made.scale === false ? "scaled_scores = scores" : `scaled_scores = scores / √d_k = scores / √${cols} = scores / ${fixed(Math.sqrt(cols))}`,
      shapes: pairsShape(p),
    };
  },
  stage: (p) => <Row p={p} of={[["", "scores"], ["→", "scaled_scores"]]} cursor={{ i: p.sel.i, j: p.sel.j }} />,
  worked: (p) => {
    const { cols } = gridOf(p.trace, "queries", p.head);
    const entropy = entropyOf(p.trace, p.head)[p.sel.i]!;
    const before = p.state.before;
    return (
      <>
        <Heading><Pair p={p} of="scaled_scores" /></Heading>
        <p class="formula">
          {fixed(pair(p, "scores"))}{p.trace.made.scale === false ? "" : ` / ${fixed(Math.sqrt(cols))}`} = <output>{fixed(pair(p, "scaled_scores"))}</output>
        </p>
        <p>
          {say.entropyOf(word(p, p.sel.i), fixed(entropy), fixed(Math.exp(entropy)))}
          {before && before.labels[p.sel.i] !== undefined && say.scale.before(difference(before, p.trace), fixed(entropyOf(before, Math.min(p.head, headsOf(before) - 1))[p.sel.i]!))}
        </p>
        <Growth />
      </>
    );
  },
  exercise: (p) => {
    const visible = p.trace.key_labels.map((_, j) => j).filter((j) => !isHidden(p.trace, p.trace.focus, j));
    const raw = visible.map((j) => at(gridOf(p.trace, "scores", p.head), p.trace.focus, j));
    const { cols } = gridOf(p.trace, "queries", p.head);
    if (visible.length < 2 || cols < 2) return null;
    return (
      <Exercise question={say.scale.question(cols, word(p, p.trace.focus))} options={say.scale.options} right={1}>
        {say.scale.answer(fixed(spread(raw)), fixed(spread(raw.map((x) => x / Math.sqrt(cols)))))}
      </Exercise>
    );
  },
};

export const mask: Step = {
  id: "mask",
  name: say.mask.name,
  title: say.mask.title,
  perHead: true,
  when: (trace) => "logits" in trace.tensors,
  text: (p) => say.mask.text(p.trace.causal, typeof p.trace.made.window === "number" ? p.trace.made.window : null),
  formula: (p) => ({ text: say.mask.formula, shapes: pairsShape(p) }),
  stage: (p) => <Row p={p} of={[["", "scaled_scores"], ["→", "logits"]]} cursor={{ i: p.sel.i, j: p.sel.j }} />,
  worked: (p) => {
    const hidden = isHidden(p.trace, p.sel.i, p.sel.j);
    const seen = p.trace.key_labels.filter((_, j) => !isHidden(p.trace, p.sel.i, j)).length;
    return (
      <>
        <Heading><Pair p={p} of="logits" />: {fixed(pair(p, "logits"))}</Heading>
        <p>{say.mask.sees({ query: word(p, p.sel.i), i: p.sel.i + 1, key: key(p, p.sel.j), j: p.sel.j + 1, hidden, seen, keys: p.trace.key_labels.length })}</p>
      </>
    );
  },
  exercise: (p) => {
    const i = Math.min(2, p.trace.labels.length - 1);
    const seen = p.trace.key_labels.filter((_, j) => !isHidden(p.trace, i, j)).length;
    const options = [...new Set([seen, seen + 1, Math.max(seen - 1, 0), p.trace.key_labels.length])].sort((a, b) => a - b);
    return (
      <Exercise
        question={say.mask.question(word(p, i), i + 1, p.trace.labels.length)}
        options={options.map(String)}
        right={options.indexOf(seen)}
      >
        {say.mask.answer(seen)}
      </Exercise>
    );
  },
};
