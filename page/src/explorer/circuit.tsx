// A circuit: the edges that the difference between two answers needs, as a graph whose nodes lead to their heads.
import { useEffect, useState } from "preact/hooks";
import { signed } from "../grid";
import type { Circuit, CircuitEdge, HeadId, Part, Pass } from "./model";
import { decoderHead, shownToken } from "./model";
import type { State, Store } from "./store";

const counts = [10, 20, 40];

interface Node {
  name: string;
  row: number; // what stands above reads what stands below
  x: number;
  part: Part | null; // that can be taken out
}

// "23.4", "3.0 k", "mlp 5", "embedding" or "output". Keys and values that several heads share are nodes of their own.
const nodeOf = (name: string, group: number): Node => {
  const [, layer, head, reads] = /^(\d+)\.(\d+)(?: ([qkv]))?$/.exec(name) ?? [];
  if (head !== undefined) {
    const shared = group > 1 && (reads === "k" || reads === "v");
    const own: Part = { kind: "head", layer: Number(layer), head: Number(head) };
    return shared ? { name, row: 3 * own.layer!, x: 0, part: null } : { name: `${layer}.${head}`, row: 3 * own.layer! + 1, x: 0, part: own };
  }
  const [, mlp] = /^mlp (\d+)$/.exec(name) ?? [];
  if (mlp !== undefined) return { name, row: 3 * Number(mlp) + 2, x: 0, part: { kind: "mlp", layer: Number(mlp) } };
  return { name, row: name === "output" ? Infinity : -1, x: 0, part: null };
};

interface Line {
  from: Node;
  to: Node;
  score: number; // 0: it joins what belongs together
}
interface Graph {
  nodes: Node[];
  lines: Line[];
  rows: number;
  width: number;
}

const [height, margin] = [46, 24]; // pixels of a row, and beside all

// Each node near those that it is joined to, in rows of their own.
const laidOut = ({ edges, group }: Circuit, gap: number): Graph => {
  const all = new Map<string, Node>();
  const node = (name: string): Node => {
    const made = nodeOf(name, group);
    if (!all.has(made.name)) all.set(made.name, made);
    return all.get(made.name)!;
  };
  const lines = edges.map(({ source, receiver, score }: CircuitEdge): Line => ({ from: node(source), to: node(receiver), score }));
  for (const shared of [...all.values()]) {
    const [, layer, keys] = /^(\d+)\.(\d+) [kv]$/.exec(shared.name) ?? [];
    for (let head = Number(keys) * group; keys !== undefined && head < (Number(keys) + 1) * group; ++head) {
      const reader = all.get(`${layer}.${head}`);
      if (reader) lines.push({ from: shared, to: reader, score: 0 });
    }
  }
  const nodes = [...all.values()];
  const order = [...new Set(nodes.map(({ row }) => row))].sort((a, b) => a - b);
  for (const each of nodes) each.row = order.indexOf(each.row);
  const rows = order.map((_, row) => nodes.filter((each) => each.row === row));
  const width = gap * Math.max(...rows.map(({ length }) => length), 5);
  const spread = (row: Node[]) => {
    row.sort((a, b) => a.x - b.x);
    const places = row.map(({ x }, n) => Math.max(x, gap / 2 + n * gap));
    for (let n = row.length - 1; n >= 0; --n) places[n] = Math.min(places[n]!, n + 1 < row.length ? places[n + 1]! - gap : width - gap / 2);
    row.forEach((each, n) => { each.x = Math.max(places[n]!, gap / 2 + n * gap); });
  };
  for (const row of rows) row.forEach((each, n) => { each.x = (width * (n + 1)) / (row.length + 1); });
  for (let sweep = 0; sweep < 12; ++sweep) {
    for (const each of nodes) {
      const near = lines.flatMap(({ from, to, score }) => (from === each ? [[to.x, score]] : to === each ? [[from.x, score]] : [])) as [number, number][];
      const weight = near.reduce((sum, [, score]) => sum + Math.abs(score) + 0.1, 0);
      each.x = near.reduce((sum, [x, score]) => sum + x * (Math.abs(score) + 0.1), 0) / weight;
    }
    rows.forEach(spread);
  }
  return { nodes, lines, rows: rows.length, width };
};

const boxOf = ({ name }: Node): number => (name.length > 6 ? 78 : 54);

function Drawing({ circuit, chosen, onChoose }: { circuit: Circuit; chosen: string | null; onChoose: (node: Node) => void }) {
  const [near, setNear] = useState<string | null>(null);
  const gap = innerWidth < 700 ? 58 : 84; // pixels of a node
  const { nodes, lines, rows, width } = laidOut(circuit, gap);
  const largest = Math.max(...lines.map(({ score }) => Math.abs(score)), 1e-9);
  const y = (row: number) => (rows - 1 - row) * height + height / 2;
  const looked = near ?? chosen;
  const ofNode = ({ from, to }: Line) => from.name === looked || to.name === looked;
  const marked = lines.some(ofNode);
  return (
    <div class="graph">
      <svg viewBox={`${-margin} 0 ${width + 2 * margin} ${rows * height}`} style={{ width: `${width + 2 * margin}px` }} role="group" aria-label={`A graph of ${circuit.edges.length} edges between ${nodes.length} nodes`}>
        {lines.map((line, n) => {
          const [a, b] = [y(line.from.row) - 12, y(line.to.row) + 12];
          // What passes other rows goes around what stands there.
          const span = line.to.row - line.from.row;
          const bend = span === 1 ? (a - b) / 2 + 8 : (a - b) / 3;
          const apart = line.from.x - line.to.x;
          const side = Math.abs(apart) > 4 ? Math.sign(apart) : line.from.part?.kind === "head" ? -1 : 1;
          const aside = span === 1 ? 0 : side * (Math.abs(apart) > gap / 2 ? gap * 0.35 : gap * 0.6 + 6 * span);
          const bent = ({ x }: Node) => Math.min(Math.max(x + aside, -margin), width + margin);
          return (
            <path
              key={n} d={`M${line.from.x} ${a}C${bent(line.from)} ${a - bend} ${bent(line.to)} ${b + bend} ${line.to.x} ${b}`} class={[line.score < 0 ? "negative" : line.score === 0 ? "joined" : "", marked && !ofNode(line) ? "faint" : ""].filter(Boolean).join(" ") || undefined}
              stroke-width={line.score === 0 ? 1 : 1 + (6 * Math.abs(line.score)) / largest}
            >
              <title>{`${line.from.name} to ${line.to.name}${line.score === 0 ? "" : `: ${signed(line.score)}`}`}</title>
            </path>
          );
        })}
        {nodes.map((node) => (
          <g
            key={node.name} role="button" tabindex={0} aria-pressed={node.name === chosen} aria-label={node.name} class={node.name === looked ? "on" : undefined} transform={`translate(${node.x} ${y(node.row)})`} data-node={node.name}
            onClick={() => onChoose(node)} onKeyDown={(event) => { if (event.key === "Enter" || event.key === " ") event.preventDefault(), onChoose(node); }} onPointerEnter={() => setNear(node.name)} onPointerLeave={() => setNear(null)}
          >
            <rect x={-boxOf(node) / 2} y={-16} width={boxOf(node)} height={32} rx={6} />
            <text text-anchor="middle" dominant-baseline="central">{node.name}</text>
          </g>
        ))}
      </svg>
    </div>
  );
}

// What a node's number is without it.
function Chosen({ store, state, circuit, node, pass }: { store: Store; state: State; circuit: Circuit; node: Node; pass: Pass }) {
  const [value, setValue] = useState<number | null>(null);
  const { part } = node;
  useEffect(() => {
    setValue(null);
    if (!part) return;
    let asked = true;
    store.withoutNode(part).then((found) => { if (asked) setValue(found); }, () => undefined);
    return () => { asked = false; };
  }, [circuit, node.name]);
  const id: HeadId | null = part?.kind === "head" ? decoderHead(pass, part.layer!, part.head!, "self") : null;
  if (!part) return <p>{node.name === "embedding" ? "The words themselves." : node.name === "output" ? "What the answer is read from." : "What several heads share."}</p>;
  return (
    <p>
      Without {id ? "head" : ""} {node.name} the difference is <output data-without={value ?? undefined}>{value === null ? "…" : signed(value)}</output>, with it {signed(circuit.clean)}.{" "}
      {id && <>Its map is shown below. <button type="button" aria-pressed={state.without.some((each) => String(each) === String(id))} onClick={() => void store.toggleHead(id)}>Take it out</button></>}
    </p>
  );
}

export function CircuitView({ store, state }: { store: Store; state: State }) {
  const [corrupt, setCorrupt] = useState("");
  const [keep, setKeep] = useState(counts.at(-1)!);
  const [node, setNode] = useState<Node | null>(null);
  const { circuit, finding } = state.why!;
  const pass = state.pass!;
  useEffect(() => setNode(null), [circuit]);
  const choose = (of: Node) => {
    setNode(of);
    if (of.part?.kind === "head") store.lockToken({ head: decoderHead(pass, of.part.layer!, of.part.head!, "self"), query: state.why!.answer.position, key: null });
  };
  return (
    <section class="circuit" aria-label="A circuit">
      <h3>Which parts does it need? A circuit</h3>
      <p class="quiet">Beside another text of as many tokens, which the model answers in another way: the edges between heads and MLPs along which the difference goes, and how much of it they keep when all others carry the other text.</p>
      <form onSubmit={(event) => { event.preventDefault(); void store.findCircuit(corrupt, keep); }}>
        <input type="text" value={corrupt} placeholder="such as: The capital of Italy is" aria-label="The other text" spellcheck={false} onInput={(event) => setCorrupt(event.currentTarget.value)} />
        <label><select value={keep} onChange={(event) => setKeep(Number(event.currentTarget.value))}>{counts.map((count) => <option key={count} value={count}>{count}</option>)}</select> edges</label>
        <button type="submit" disabled={corrupt.trim() === "" || finding !== undefined}>Find it</button>
        {finding !== undefined && <progress value={finding} max={1} aria-label="The circuit is being found" />}
      </form>
      {circuit && (
        <>
          <p>
            <bdi class="word">{shownToken(state.why!.about)}</bdi> rather than <bdi class="word">{shownToken(circuit.against_token)}</bdi>: the difference of their logits is {signed(circuit.clean)} here and {signed(circuit.corrupt)} after the other text.
            With these {circuit.edges.length} of {circuit.count.toLocaleString("en")} edges alone it is <output data-faithfulness={circuit.faithfulness}>{signed(circuit.value)}</output>: {Math.round(circuit.faithfulness * 100)} % of the way.
          </p>
          {node && <Chosen store={store} state={state} circuit={circuit} node={node} pass={pass} />}
          {circuit.edges.length > 0 && <Drawing circuit={circuit} chosen={node?.name ?? null} onChoose={choose} />}
          <p class="quiet"><i class="swatch" /> towards this answer, <i class="swatch negative" /> against it; the wider, the more. Click a node to see what changes without it.</p>
        </>
      )}
    </section>
  );
}
