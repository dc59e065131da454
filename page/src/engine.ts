// The library, compiled to WebAssembly: a request goes in as JSON, a trace comes out. docs/page.md has the names.
import createModule from "attend-engine";
import { EngineError } from "./error";

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

// f32, row by row.
export interface Tensor {
  shape: number[];
  data: Float32Array;
}

export interface Trace {
  preset: string | null;
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

  static async load(wasmBinary: Uint8Array): Promise<Engine> {
    // The module is at hand: it asks for no file.
    return new Engine(await createModule({ wasmBinary, locateFile: (name) => name }));
  }

  // Throws EngineError with the library's words.
  explain(request: Request): Trace {
    const answer = parseRequest(this.ask(requestJson(request))) as unknown as Answer;
    if ("error" in answer) throw new EngineError(answer.error.message);
    const tensors: Record<string, Tensor> = {};
    for (const [name, { shape, at }] of Object.entries(answer.tensors)) {
      const count = shape.reduce((product, size) => product * size, 1);
      tensors[name] = { shape, data: new Float32Array(this.module.HEAPU8.buffer, at, count).slice() };
    }
    return { ...answer, tensors };
  }

  private ask(json: string): string {
    const size = this.module.lengthBytesUTF8(json) + 1;
    const at = this.module._malloc(size);
    if (at === 0) throw new EngineError("there is no memory for a text of this length");
    try {
      this.module.stringToUTF8(json, at, size);
      return this.module.UTF8ToString(this.module._attend_explain(at));
    } finally {
      this.module._free(at);
    }
  }
}

type Answer =
  | { error: { code: string; message: string } }
  | (Omit<Trace, "tensors"> & { tensors: Record<string, { shape: number[]; at: number }> });
