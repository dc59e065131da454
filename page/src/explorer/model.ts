// What is looked at: a model that computes a text, or a recording; and the requests that bring it from the worker.
import type { Grid } from "../grid";
import type { Answered, Client } from "./client";
import type { Tensor } from "./protocol";

export type By = "weight" | "norm";
export type HeadId = [layer: number, head: number];

export interface Info {
  type: string;
  decoder: boolean;
  encoder_decoder: boolean;
  layers: number;
  heads: number;
  parameters: number;
  formats: string[];
  weight_bytes: number;
  longest: number | null;
  vector_size: number;
}

export interface Next {
  id: number;
  token: string;
  probability: number;
}

interface Label {
  name: string;
  value: number;
}

// A head, as `attend show --json` has it.
export interface Head {
  layer: number;
  head: number;
  name: string;
  labels: Label[];
  without_sink: { labels: Label[] } | null;
  sink_key: number | null;
  [score: string]: unknown;
}

export interface Layer {
  name: string;
  kind: string;
  heads: number[];
  queries: number;
  keys: number;
  qk: boolean;
}

interface HeadTable {
  model: string;
  tokens: string[] | null;
  decoder_tokens: string[] | null;
  layers: Layer[];
  heads: (Omit<Head, "layer"> & { layer: string })[]; // by the layer's name
}

// What one pass gave. Tokens of its own text from `written` on were written by the model itself.
export interface Pass {
  model: string;
  tokens: string[];
  decoderTokens: string[];
  layers: Layer[];
  heads: Head[];
  maps: Grid[][]; // of each layer and head, at most 64 x 64; NaN where nothing is seen
  telling: Telling[];
  by: By;
  next: Next[];
  embedding: Float32Array | null;
  written: number;
  words?: Pass; // of a pass by words: the one by tokens
}

interface Telling {
  layer: number;
  head: number;
  links: { query: number; key: number; weight: number }[];
}

export interface Why {
  token: number;
  position: number;
  logit: number;
  capped_logit: number;
  embedding: number;
  bias: number;
  rounding: number;
  heads: Tensor; // [L,H,T]
  cross: Tensor | null; // [L,H,Tk]
  mlps: Tensor; // [L]
  by_token: Tensor; // [T]
}

export interface Lens {
  ids: Tensor; // [L+1,1,n]
  log_probabilities: Tensor;
  rank: Tensor;
  tokens: string[];
}

// A pass's maps are exact up to so many queries and keys; of longer texts they are blocks, for thumbnails.
const fewPairs = 64;
const thumbnail = 32;

export const matrixOf = ({ shape, data }: Tensor, place = 0): Grid => {
  const [rows, cols] = shape.slice(-2) as [number, number];
  return { rows, cols, data: data.subarray(place * rows * cols, (place + 1) * rows * cols) };
};
export const isExact = (layer: Layer, map: Grid): boolean => map.rows === layer.queries && map.cols === layer.keys;

const looked = async (client: Client, by: By, item: number): Promise<Omit<Pass, "next" | "embedding" | "written">> => {
  const table = await client.ask<HeadTable>({ do: "heads", by, item });
  const longest = Math.max(...table.layers.map(({ queries, keys }) => Math.max(queries, keys)));
  const most = longest <= fewPairs ? fewPairs : thumbnail;
  const { tensors } = await client.ask({ do: "maps", by, item, most: [most, most] });
  const { heads: telling } = await client.ask<{ heads: Telling[] }>({ do: "telling", by, item, most: 8 });
  const maps = table.layers.map(({ heads }, layer) => heads.map((_, place) => matrixOf(tensors[String(layer)]!, place)));
  const places = new Map(table.layers.map(({ name }, layer) => [name, layer]));
  const heads = table.heads.map((head) => ({ ...head, layer: places.get(head.layer)! }) as Head);
  return { ...table, heads, tokens: table.tokens ?? [], decoderTokens: table.decoder_tokens ?? [], maps, telling, by };
};

export interface Asked {
  text: string;
  chat: boolean;
  grown?: Grown | null; // in place of the text
  without: string[]; // heads by the names of their layers and their numbers: "18.self 6"
}
// A text and what was written after it; of an encoder-decoder that is its decoder's text.
export interface Grown {
  ids: number[];
  decoder_ids?: number[];
  written: number; // where it begins
}

// What a request says of a text and of the heads that are out.
export const requestOf = ({ text, chat, grown, without }: Asked): Record<string, unknown> => {
  const out: Record<string, [number, number][]> = {};
  for (const name of without) {
    const [, stack = "", layer, kind, head] = /^(encoder\.|decoder\.)?(\d+)\.(\w+) (\d+)$/.exec(name)!;
    (out[stack === "encoder." ? "without_encoder" : kind === "cross" ? "without_cross" : "without"] ??= []).push([Number(layer), Number(head)]);
  }
  const { written: _, ...ids } = grown ?? { written: 0 };
  return { ...(grown ? ids : { text, ...(chat && { chat }) }), ...out };
};

// What the model says, without looking at its heads.
export const said = async (client: Client, asked: Asked): Promise<{ next: Next[]; embedding: Float32Array | null }> => {
  const answer = await client.ask<{ next?: Next[] }>({ do: "run", ...requestOf(asked), record: false });
  return { next: answer.next ?? [], embedding: answer.tensors.embedding?.data ?? null };
};

export const computed = async (client: Client, asked: Asked, by: By): Promise<Pass> => {
  const answer: Answered<{ next?: Next[]; ids: number[]; tokens: string[] }> = await client.ask({ do: "run", ...requestOf(asked), norm: true });
  const seen = await looked(client, by, 0);
  return { ...seen, next: answer.next ?? [], embedding: answer.tensors.embedding?.data ?? null, written: asked.grown?.written ?? ownTokens(seen).length };
};

export const recorded = async (client: Client, by: By, item: number): Promise<Pass> => {
  const seen = await looked(client, by, item);
  return { ...seen, next: [], embedding: null, written: ownTokens(seen).length };
};

export const sameHead = (a: HeadId, b: HeadId): boolean => a[0] === b[0] && a[1] === b[1];
// Where a head is a sink, the key that takes so much.
export const sinkOf = ({ labels, sink_key }: Head): number | null => (labels.some(({ name }) => name === "sink") ? sink_key : null);
// What a head is called, also beside its sink.
export const labelNames = ({ labels, without_sink }: Head): string[] => [...labels, ...(without_sink?.labels ?? [])].map(({ name }) => name);
export const headOf = (pass: Pass, [layer, head]: HeadId): Head | undefined => pass.heads.find((each) => each.layer === layer && each.head === head);
export const mapOf = (pass: Pass, [layer, head]: HeadId): Grid => pass.maps[layer]![pass.layers[layer]!.heads.indexOf(head)]!;

// The text that goes on: of an encoder-decoder its decoder's.
export const ownTokens = ({ tokens, decoderTokens }: Pick<Pass, "tokens" | "decoderTokens">): string[] => (decoderTokens.length > 0 ? decoderTokens : tokens);
// The name of a layer and a head's number; and the head of a model's layer that writes into a decoder's own text.
export const nameOf = (pass: Pass, [layer, head]: HeadId): string => `${pass.layers[layer]!.name} ${head}`;
export const decoderHead = (pass: Pass, layer: number, head: number, kind: "self" | "cross"): HeadId =>
  [pass.layers.findIndex(({ name }) => name.replace(/^decoder\./, "") === `${layer}.${kind}`), head];
// Where the model's own words begin among a layer's queries.
export const writtenOf = (pass: Pass, layer: number): number => (pass.decoderTokens.length > 0 && pass.layers[layer]!.name.startsWith("encoder.") ? Infinity : pass.written);

// Of an encoder-decoder, the decoder's layers have its tokens as queries, and "cross" ones the encoder's as keys.
const tokensOf = (count: number, first: string[], second: string[]): string[] =>
  first.length === count ? first : second.length === count ? second : Array.from({ length: count }, (_, place) => String(place));
export const queriesOf = (pass: Pass, layer: number): string[] => {
  const { name, queries } = pass.layers[layer]!;
  return name.startsWith("decoder.") ? tokensOf(queries, pass.decoderTokens, pass.tokens) : tokensOf(queries, pass.tokens, pass.decoderTokens);
};
export const keysOf = (pass: Pass, layer: number): string[] => {
  const { name, kind, keys } = pass.layers[layer]!;
  return name.startsWith("decoder.") && kind !== "cross" ? tokensOf(keys, pass.decoderTokens, pass.tokens) : tokensOf(keys, pass.tokens, pass.decoderTokens);
};

export const cosine = (a: Float32Array, b: Float32Array): number => {
  let [product, ofA, ofB] = [0, 0, 0];
  for (let n = 0; n < a.length; ++n) (product += a[n]! * b[n]!), (ofA += a[n]! ** 2), (ofB += b[n]! ** 2);
  return product / Math.sqrt(ofA * ofB);
};

// What could not be seen, or would turn the text around, is seen: line ends, control characters, marks of direction.
export const shownToken = (token: string): string =>
  token.replace(/^ +$/, (blanks) => "␣".repeat(blanks.length)).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/[\0-\x1f]/g, (letter) => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(/[\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g, (letter) => `⟨${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`) || "∅";
export const labelText = (head: Head): string => {
  if (head.labels.length === 0) return "too few words to say what it does";
  const said = (labels: Label[]): string => labels.map(({ name, value }) => (["broad", "focused", "other"].includes(name) ? `${name}, over ${value.toFixed(1)} keys` : `${name} ${value.toFixed(2)}`)).join(", ");
  return said(head.labels) + (head.without_sink && head.without_sink.labels.length > 0 ? `; besides: ${said(head.without_sink.labels)}` : "");
};
