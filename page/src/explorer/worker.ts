// Computes off the page's main thread: the module for models, its files, and one request after the other.
import createModule from "attend-models";
import type { FromWorker, GivenFile, Tensor, ToWorker } from "./protocol";

const scope = self as unknown as {
  onmessage: (event: MessageEvent<ToWorker>) => void;
  postMessage(message: FromWorker, transfer?: Transferable[]): void;
};

class Refused extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
  }
}

// WebAssembly addresses 4 GiB; what a text needs besides the weights has to fit, too.
const mostBytes = 3.6e9;

let binary: Uint8Array | null = null;
let module: ModelsModule | null = null; // in which something is open
let unused: ModelsModule | null = null; // in which nothing has been

// Browsers that have it (from 2025 on) take a seventh of the time of atob().
const fromBase64 = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64 ?? ((text: string) => {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; ++n) bytes[n] = letters.charCodeAt(n);
  return bytes;
});
// Letters come in parts of any length: four of them are three bytes.
const decoded = (): TransformStream<Uint8Array, Uint8Array> => {
  const letters = new TextDecoder("latin1");
  let rest = "";
  return new TransformStream({
    transform(part, controller) {
      const text = rest + letters.decode(part);
      const whole = text.length - (text.length % 4);
      rest = text.slice(whole);
      if (whole > 0) controller.enqueue(fromBase64(text.slice(0, whole)));
    },
  });
};
const gunzipped = (base64: Blob): ReadableStream<Uint8Array> =>
  base64.stream().pipeThrough(decoded()).pipeThrough(new DecompressionStream("gzip") as ReadableWritablePair<Uint8Array, Uint8Array>);

const made = (): Promise<ModelsModule> => createModule({ wasmBinary: binary!, locateFile: (name) => name });

const start = async (base64: Blob): Promise<void> => {
  binary = new Uint8Array(await new Response(gunzipped(base64)).arrayBuffer());
  unused = await made();
};

const withText = <T>(of: ModelsModule, text: string, use: (at: number) => T): T => {
  const bytes = of.lengthBytesUTF8(text) + 1;
  const at = of._malloc(bytes) >>> 0;
  if (at === 0) throw new Refused("out_of_memory", "there is no memory for a text of this length");
  try {
    of.stringToUTF8(text, at, bytes);
    return use(at);
  } finally {
    of._free(at);
  }
};

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

const put = async (of: ModelsModule, files: GivenFile[], progress: (share: number) => void): Promise<void> => {
  const all = files.reduce((sum, { bytes }) => sum + bytes, 0);
  if (all > mostBytes)
    throw new Refused("out_of_memory", `the files have ${gigabytes(all)}, and a page computes with up to ${gigabytes(mostBytes)}; the command attend model opens larger ones`);
  let there = 0;
  for (const { name, bytes, from, isBase64 } of files) {
    const at = withText(of, name, (text) => of._attend_file(text, bytes)) >>> 0;
    if (at === 0) throw new Refused("out_of_memory", `this browser gives no memory for ${name}, which has ${gigabytes(bytes)}`);
    const reader = (isBase64 ? gunzipped(from) : (from.stream() as ReadableStream<Uint8Array>)).getReader();
    let written = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (written + part.value.length > bytes) throw new Refused("bad_file", `${name} has more than its ${bytes} bytes`);
      of.HEAPU8.set(part.value, at + written);
      written += part.value.length;
      progress((there + written) / all);
    }
    if (written !== bytes) throw new Refused("bad_file", `${name} ends after ${written} of its ${bytes} bytes`);
    there += bytes;
  }
};

// Copies, as the next request overwrites the memory. Ids stay exact: no vocabulary has 2^24 tokens.
const copied = (of: ModelsModule, { shape, at, dtype }: { shape: number[]; at: number; dtype?: string }): Tensor => {
  const count = shape.reduce((product, size) => product * size, 1);
  const memory = of.HEAPU8.buffer;
  if (dtype === "i64") return { shape, data: Float32Array.from(new BigInt64Array(memory, at, count), Number) };
  if (dtype === "f64") return { shape, data: Float32Array.from(new Float64Array(memory, at, count)) };
  return { shape, data: new Float32Array(memory, at, count).slice() };
};

interface Answer {
  error?: { code: string; message: string };
  tensors?: Record<string, { shape: number[]; at: number; dtype?: string }>;
}

const ask = (of: ModelsModule, request: unknown): [unknown, Transferable[]] => {
  const answer = JSON.parse(withText(of, JSON.stringify(request), (at) => of.UTF8ToString(of._attend_model(at) >>> 0))) as Answer;
  if (answer.error) throw new Refused(answer.error.code, answer.error.message);
  const tensors = Object.fromEntries(Object.entries(answer.tensors ?? {}).map(([name, tensor]) => [name, copied(of, tensor)]));
  return [{ ...answer, tensors }, Object.values(tensors).map(({ data }) => data.buffer as ArrayBuffer)];
};

// A module of its own, with memory of its own: what is open stays as it is until this one has answered.
const open = async (files: GivenFile[], request: unknown, progress: (share: number) => void): Promise<[unknown, Transferable[]]> => {
  const of = unused ?? (await made());
  unused = null;
  await put(of, files, progress);
  const answered = ask(of, request);
  module = of;
  return answered;
};

const answerTo = async (order: ToWorker): Promise<[unknown, Transferable[]]> => {
  if ("start" in order) return await start(order.start), [null, []];
  if (!("open" in order)) return ask((module ??= await made()), order.ask);
  let said = 0;
  return open(order.open, order.ask, (progress) => {
    if (progress < said + 0.01) return;
    said = progress;
    scope.postMessage({ id: order.id, progress });
  });
};

const handle = async (order: ToWorker): Promise<void> => {
  const { id } = order;
  try {
    const [answer, transfer] = await answerTo(order);
    scope.postMessage({ id, answer }, transfer);
  } catch (error) {
    const opening = "open" in order;
    // A module that trapped is not asked again: the next one is new, and has no model.
    if (error instanceof WebAssembly.RuntimeError && !opening) module = null;
    const { code, message } = error instanceof Refused ? error : { code: "failed", message: `the engine stopped (${String(error)}); ${opening ? "it can't open this" : "open the model again"}` };
    scope.postMessage({ id, error: { code, message } });
  }
};

let last = Promise.resolve();
scope.onmessage = ({ data }) => {
  last = last.then(() => handle(data));
};
