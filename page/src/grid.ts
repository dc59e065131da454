// Matrices of a trace as the page shows them.
import type { Trace } from "./engine";
import type { Tensor } from "./memory";

export interface Grid {
  rows: number;
  cols: number;
  data: Float32Array;
}

export const at = (grid: Grid, row: number, col: number): number => grid.data[row * grid.cols + col]!;
export const rowOf = (grid: Grid, row: number): Float32Array => grid.data.subarray(row * grid.cols, (row + 1) * grid.cols);

export const matrix = (tensor: Tensor, head = 0): Grid => {
  const [rows, cols] = tensor.shape.slice(-2) as [number, number];
  const start = tensor.shape.length === 3 ? head * rows * cols : 0;
  return { rows, cols, data: tensor.data.subarray(start, start + rows * cols) };
};

// The matrix of a name, of one head where it has heads; throws where the trace has none: a step asks for what is there.
export const gridOf = (trace: Trace, name: string, head = 0): Grid => {
  const tensor = trace.tensors[name];
  if (!tensor) throw new Error(`the trace has no ${name}`);
  return matrix(tensor, head);
};

export const headsOf = (trace: Trace): number => (trace.tensors.queries!.shape.length === 3 ? trace.tensors.queries!.shape[0]! : 1);
export const isMultiHead = (trace: Trace): boolean => trace.tensors.queries!.shape.length === 3;
export const isCross = (trace: Trace): boolean => "embeddings_2" in trace.tensors;

// What the softmax sees.
export const logitsOf = (trace: Trace, head: number): Grid => gridOf(trace, trace.tensors.logits ? "logits" : "scaled_scores", head);
export const inputName = (trace: Trace): string => (trace.tensors.inputs ? "inputs" : "embeddings");
export const secondInputName = (trace: Trace): string =>
  trace.tensors.inputs_2 ? "inputs_2" : isCross(trace) ? "embeddings_2" : inputName(trace);

export const isHidden = (trace: Trace, i: number, j: number): boolean => {
  const logits = trace.tensors.logits;
  return logits !== undefined && matrix(logits).data[i * logits.shape.at(-1)! + j] === -Infinity;
};

// NaN, a pair that is hidden, is never the largest; of nothing else the first is.
export const argmax = (values: Float32Array): number =>
  values.reduce((best, value, index) => (value > values[best]! || (Number.isNaN(values[best]) && !Number.isNaN(value)) ? index : best), 0);

// The row and column of what is drawn in an element that a pointer is over.
export const cellUnder = (event: MouseEvent, element: Element, rows: number, cols: number): [row: number, col: number] => {
  const box = element.getBoundingClientRect();
  const place = (offset: number, length: number, count: number) => Math.min(Math.max(Math.floor((offset / length) * count), 0), count - 1);
  return [place(event.clientY - box.top, box.height, rows), place(event.clientX - box.left, box.width, cols)];
};

// Of a head's queries, in nats.
export const entropyOf = (trace: Trace, head: number): Float32Array => {
  const { shape, data } = trace.tensors.entropy!;
  const count = shape.at(-1)!;
  return shape.length === 2 ? data.subarray(head * count, (head + 1) * count) : data;
};

// The column of a projection's matrix that makes the number d: w stands as [out,in] or as [in,out].
export const projectionColumn = (trace: Trace, w: Grid, d: number): Float32Array =>
  trace.weights_in_out ? Float32Array.from({ length: w.rows }, (_, e) => at(w, e, d)) : rowOf(w, d);

// Four decimals, as PyTorch prints and the documents do.
export const fixed = (value: number): string => {
  if (value === -Infinity) return "-inf";
  if (Math.abs(value) >= 1e5) return value.toExponential(4);
  return value.toFixed(4).replace(/^-(0\.0000)$/, "$1");
};

// Two decimals and always a sign: what a part adds or takes away.
export const signed = (value: number): string => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
