// What goes into a module's memory, and what comes out of it.
import { EngineError } from "./error";

// f32, row by row.
export interface Tensor {
  shape: number[];
  data: Float32Array;
}
// Where a module has one, until it is asked again.
export interface TensorAt {
  shape: number[];
  at: number;
  dtype?: string;
}

export const withText = <T>(module: EmscriptenModule, text: string, use: (at: number) => T): T => {
  const bytes = module.lengthBytesUTF8(text) + 1;
  const at = module._malloc(bytes) >>> 0;
  if (at === 0) throw new EngineError("there is no memory for a text of this length");
  try {
    module.stringToUTF8(text, at, bytes);
    return use(at);
  } finally {
    module._free(at);
  }
};

// Copies, as the next request overwrites the memory. Ids stay exact: no vocabulary has 2^24 tokens.
const copied = (memory: ArrayBufferLike, { shape, at, dtype }: TensorAt): Tensor => {
  const count = shape.reduce((product, size) => product * size, 1);
  if (dtype === "i64") return { shape, data: Float32Array.from(new BigInt64Array(memory, at, count), Number) };
  if (dtype === "f64") return { shape, data: Float32Array.from(new Float64Array(memory, at, count)) };
  return { shape, data: new Float32Array(memory, at, count).slice() };
};
export const tensorsOf = (module: EmscriptenModule, tensors: Record<string, TensorAt> = {}): Record<string, Tensor> =>
  Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, copied(module.HEAPU8.buffer, tensor)]));

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
export const gunzipped = (base64: Blob): ReadableStream<Uint8Array> =>
  base64.stream().pipeThrough(decoded()).pipeThrough(new DecompressionStream("gzip") as ReadableWritablePair<Uint8Array, Uint8Array>);
// A module's own bytes, as it asks for them.
export const given = async (base64: Blob): Promise<Parameters<Create<unknown>>[0]> =>
  ({ wasmBinary: new Uint8Array(await new Response(gunzipped(base64)).arrayBuffer()), locateFile: (name) => name });
