// The library, compiled to WebAssembly: a request goes in as JSON, a trace comes out. docs/page.md has the names.
import createModule from "attend-engine";
import { EngineError } from "./error";
import type { Tensor, TensorAt } from "./memory";
import { given, tensorsOf, withText } from "./memory";

// What explain() is asked for, by the names of C++'s ExplainOptions and docs/json.md. What is missing is explain()'s default.
export interface Request {
  preset?: string;
  text?: string;
  second_text?: string | null;
  seed?: string; // of 64 bits, more than a number of JavaScript holds exactly
  embedding_size?: number;
  d_k?: number;
  d_v?: number;
  heads?: number;
  weights?: "linear" | "uniform";
  causal?: boolean;
  positions?: boolean;
  scale?: boolean;
  window?: number | null;
}
type Made = Required<Omit<Request, "preset">>;

export interface Trace {
  preset: string | null;
  model?: string; // whose head it is; without: nothing was trained
  title: string;
  made: Made;
  tokens: string[];
  ids: number[];
  tokens_2: string[];
  ids_2: number[];
  labels: string[]; // what each query is called: its word, with its place where the word stands more than once
  key_labels: string[];
  vocabulary_size: number;
  focus: number;
  causal: boolean;
  weights_in_out: boolean;
  tensors: Record<string, Tensor>; // those of docs/json.md, and entropy [H][T], in nats
}

export interface Preset {
  name: string;
  document: string;
  summary: string;
}

// Seeds are whole numbers of up to 64 bits: they are read and written as text. No text can hold the pattern: its quotes
// are escaped there.
export const parseRequest = (json: string): Request & { focus?: number; head?: number } =>
  JSON.parse(json.replace(/"seed":\s*(\d+)/g, '"seed":"$1"'));
const requestJson = (request: Request): string => JSON.stringify(request).replace(/"seed":"(\d+)"/g, '"seed":$1');

export class Engine {
  readonly presets: Preset[];
  readonly defaults: Request; // what is taken for each option that a text is given without

  private constructor(private module: EngineModule) {
    this.presets = JSON.parse(module.UTF8ToString(module._attend_presets()));
    this.defaults = parseRequest(module.UTF8ToString(module._attend_defaults()));
  }

  static async load(base64: Blob): Promise<Engine> {
    return new Engine(await createModule(await given(base64)));
  }

  // Throws EngineError with the library's words.
  explain(request: Request): Trace {
    const { module } = this;
    const answer = parseRequest(withText(module, requestJson(request), (at) => module.UTF8ToString(module._attend_explain(at)))) as unknown as Answer;
    if ("error" in answer) throw new EngineError(answer.error.message);
    return { ...answer, tensors: tensorsOf(module, answer.tensors) };
  }
}

type Answer = { error: { code: string; message: string } } | (Omit<Trace, "tensors"> & { tensors: Record<string, TensorAt> });
