// Computes off the page's main thread: the module for models, its files, and one request after the other.
import createModule from "attend-models";
import { EngineError } from "../error";
import type { TensorAt } from "../memory";
import { given, gunzipped, tensorsOf, withText } from "../memory";
import type { FromWorker, GivenFile, ToWorker } from "./protocol";

const scope = self as unknown as {
  onmessage: (event: MessageEvent<ToWorker>) => void;
  postMessage(message: FromWorker, transfer?: Transferable[]): void;
};

// WebAssembly addresses 4 GiB; what a text needs besides the weights has to fit, too.
const mostBytes = 3.6e9;

let binary: Awaited<ReturnType<typeof given>> | null = null;
let module: ModelsModule | null = null; // in which something is open
let unused: ModelsModule | null = null; // in which nothing has been

let tell = (_: number): void => undefined; // the page, of the order that runs
// Each of its own options: they become the module.
const made = (): Promise<ModelsModule> => createModule({ ...binary!, progress: (share) => tell(share) });

const start = async (base64: Blob): Promise<void> => {
  binary = await given(base64);
  unused = await made();
};

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

type Room = (name: number, bytes: number) => number;
const put = async (of: ModelsModule, files: GivenFile[], progress: (share: number) => void, room: Room = of._attend_file): Promise<void> => {
  const all = files.reduce((sum, { bytes }) => sum + bytes, 0);
  if (all > mostBytes)
    throw new EngineError(`the files have ${gigabytes(all)}, and a page computes with up to ${gigabytes(mostBytes)}; the command attend model opens larger ones`);
  let there = 0;
  for (const { name, bytes, from, isBase64 } of files) {
    const at = withText(of, name, (text) => room(text, bytes)) >>> 0;
    if (at === 0) throw new EngineError(`this browser gives no memory for ${name}, which has ${gigabytes(bytes)}`);
    const reader = (isBase64 ? gunzipped(from) : (from.stream() as ReadableStream<Uint8Array>)).getReader();
    let written = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (written + part.value.length > bytes) throw new EngineError(`${name} has more than its ${bytes} bytes`);
      of.HEAPU8.set(part.value, at + written);
      written += part.value.length;
      progress((there + written) / all);
    }
    if (written !== bytes) throw new EngineError(`${name} ends after ${written} of its ${bytes} bytes`);
    there += bytes;
  }
};

interface Answer {
  error?: { message: string };
  tensors?: Record<string, TensorAt>;
}

const ask = (of: ModelsModule, request: unknown): [unknown, Transferable[]] => {
  const answer = JSON.parse(withText(of, JSON.stringify(request), (at) => of.UTF8ToString(of._attend_model(at) >>> 0))) as Answer;
  if (answer.error) throw new EngineError(answer.error.message);
  const tensors = tensorsOf(of, answer.tensors);
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
  if ("more" in order) {
    const of = (module ??= await made());
    await put(of, [order.more], tell, of._attend_more);
    return ask(of, order.ask);
  }
  if (!("open" in order)) return ask((module ??= await made()), order.ask);
  return open(order.open, order.ask, tell);
};

const handle = async (order: ToWorker): Promise<void> => {
  const { id } = order;
  let said = 0;
  tell = (progress) => {
    if (progress < said + 0.01) return;
    said = progress;
    scope.postMessage({ id, progress });
  };
  try {
    const [answer, transfer] = await answerTo(order);
    scope.postMessage({ id, answer }, transfer);
  } catch (error) {
    const opening = "open" in order;
    // A module that trapped is not asked again: the next one is new, and has no model.
    if (error instanceof WebAssembly.RuntimeError && !opening) module = null;
    const said = error instanceof EngineError ? error.message : `the engine stopped (${String(error)}); ${opening ? "it can't open this" : "open the model again"}`;
    scope.postMessage({ id, error: said });
  }
};

let last = Promise.resolve();
scope.onmessage = ({ data }) => {
  last = last.then(() => handle(data));
};
