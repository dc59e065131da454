import { argmax, at, entropyOf, fixed, gridOf, headsOf, isHidden, rowOf } from "../grid";
import { Exercise } from "../exercise";
import { Term } from "../glossary";
import { difference } from "../state";
import { Heading, Product, Products, Row, Word, key, productShapes, word } from "./step";
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
      <summary>Why the square root?</summary>
      <p>
        Products of independent numbers with the mean 0 cancel in part: from 24 to 384 numbers their sum spreads {(linear[2]! / linear[0]!).toFixed(1)} times as far, and √16 is 4.
        The documents draw uniform weights, all above 0. Nothing cancels there: the scores spread {(uniform[2]! / uniform[0]!).toFixed(1)} times as far, nearly 16, and √d_k divides too little.
      </p>
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Spread of the scores at ${sizes.join(", ")} numbers: mean 0: ${linear.join(", ")}; uniform: ${uniform.join(", ")}`}>
        {[1, 10, 100, 1000].map((value) => <g key={value}><line x1={left} x2={width - 96} y1={y(value)} y2={y(value)} class="grid" /><text x={left - 6} y={y(value)} text-anchor="end" dominant-baseline="central">{value}</text></g>)}
        {sizes.map((size) => <text key={size} x={x(size)} y={height - 8} text-anchor="middle">{size}</text>)}
        <polyline points={line(uniform)} /><text x={width - 90} y={y(uniform[2]!)} dominant-baseline="central">uniform</text>
        <polyline points={line(linear)} /><text x={width - 90} y={y(linear[2]!)} dominant-baseline="central">mean 0</text>
      </svg>
    </details>
  );
}

export const scores: Step = {
  id: "scores",
  name: "Scores",
  title: "Queries meet keys: scores",
  perHead: true,
  text: () => (
    <p>
      A <Term of="score" /> is the <Term of="dot product" /> of one query with one key: large where they point the same way. Touch one, and the
      query and the key that made it light up.
    </p>
  ),
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
        <p>The query of <Word>{word(p, p.sel.i)}</Word> times the key of <Word>{key(p, p.sel.j)}</Word>, number by number:</p>
        <Products
          names={["query", "key"]} total={pair(p, "scores")} axis="d"
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
        question={<>After the softmax, which key gets most of the attention of <Word>{word(p, p.trace.focus)}</Word>?</>}
        options={options.map((j) => key(p, j))}
        right={options.indexOf(best)}
      >
        It gets {fixed(row[best]!)}. The softmax keeps the order of a row: its largest visible score is its largest weight.
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
  name: "Scale",
  title: "Scores are scaled",
  perHead: true,
  text: (p) =>
    p.trace.made.scale === false ? (
      <p>
        Scaling is off: the scores go to the <Term of="softmax" /> as they are. The more numbers a query has, the farther apart its scores lie, and the
        softmax gives nearly all to one key. Switch it on, and watch the <Term of="entropy" />.
      </p>
    ) : (
      <p>
        The more products, the larger their sum. Where the numbers are independent and 0 in the mean{p.trace.made.weights === "uniform" ? ", which those here are not" : ", as those drawn here are"}, it grows with
        the square root of their number. Divided by that, scores keep a size at which the <Term of="softmax" /> can share. Switch it off,
        and watch the <Term of="entropy" />.
      </p>
    ),
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
          <Term of="entropy" /> of <Word>{word(p, p.sel.i)}</Word>: {fixed(entropy)} nats, as if over {fixed(Math.exp(entropy))} keys.
          {before && before.labels[p.sel.i] !== undefined && ` Before (${difference(before, p.trace)}): ${fixed(entropyOf(before, Math.min(p.head, headsOf(before) - 1))[p.sel.i]!)}.`}
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
      <Exercise
        question={<>Without the division by √{cols}, would <Word>{word(p, p.trace.focus)}</Word> share its attention among more words, or fewer?</>}
        options={["more", "fewer", "as many"]}
        right={1}
      >
        Unscaled, its entropy is {fixed(spread(raw))} nats; divided, {fixed(spread(raw.map((x) => x / Math.sqrt(cols))))}. Larger scores lie farther
        apart, and exp turns distances into ratios.
      </Exercise>
    );
  },
};

export const mask: Step = {
  id: "mask",
  name: "Mask",
  title: "Some keys are hidden",
  perHead: true,
  when: (trace) => "logits" in trace.tensors,
  text: (p) => (
    <p>
      {p.trace.causal && <><Term of="causal">Causal</Term>: a word sees itself and the words before it. </>}
      {typeof p.trace.made.window === "number" && `A window of ${p.trace.made.window}: a word sees at most that many words to ${p.trace.causal ? "its left" : "either side"}. `}
      The score of a key that a query does not see becomes -inf, and exp(-inf) is 0: the <Term of="softmax" /> gives it nothing.
    </p>
  ),
  formula: (p) => ({ text: "logits = scaled_scores where the query sees the key, else -inf", shapes: pairsShape(p) }),
  stage: (p) => <Row p={p} of={[["", "scaled_scores"], ["→", "logits"]]} cursor={{ i: p.sel.i, j: p.sel.j }} />,
  worked: (p) => {
    const hidden = isHidden(p.trace, p.sel.i, p.sel.j);
    const seen = p.trace.key_labels.filter((_, j) => !isHidden(p.trace, p.sel.i, j)).length;
    return (
      <>
        <Heading><Pair p={p} of="logits" />: {fixed(pair(p, "logits"))}</Heading>
        <p>
          <Word>{word(p, p.sel.i)}</Word>, place {p.sel.i + 1}, {hidden ? "does not see" : "sees"} <Word>{key(p, p.sel.j)}</Word>, place {p.sel.j + 1}.
          It sees {seen} of {p.trace.key_labels.length} keys.
        </p>
      </>
    );
  },
  exercise: (p) => {
    const i = Math.min(2, p.trace.labels.length - 1);
    const seen = p.trace.key_labels.filter((_, j) => !isHidden(p.trace, i, j)).length;
    const options = [...new Set([seen, seen + 1, Math.max(seen - 1, 0), p.trace.key_labels.length])].sort((a, b) => a - b);
    return (
      <Exercise
        question={<>How many keys does <Word>{word(p, i)}</Word>, word {i + 1} of {p.trace.labels.length}, see?</>}
        options={options.map(String)}
        right={options.indexOf(seen)}
      >
        Its row of the mask has {seen} numbers that are not -inf. A word always sees itself.
      </Exercise>
    );
  },
};
