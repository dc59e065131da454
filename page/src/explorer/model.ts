// What is looked at: a model that computes a text, or a recording; and how the worker's answers become it.
import type { Grid } from "../grid";
import { matrix } from "../grid";
import type { Answered } from "./client";

export type By = "weight" | "norm";
export type HeadId = [layer: number, head: number];

export interface Info {
  decoder: boolean;
  encoder_decoder: boolean;
  layers: number;
  heads: number;
  parameters: number;
  longest: number | null; // tokens of a text
  formats: string[];
  weight_bytes: number;
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
  excess: Record<string, number | null>; // of each label that has one
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

// What one pass gave. Tokens of its own text from `written` on were written by the model itself.
export interface Pass {
  model: string;
  tokens: string[];
  decoderTokens: string[];
  layers: Layer[];
  heads: Head[];
  maps: Grid[][]; // of each layer and head, at most 64 x 64; NaN where nothing is seen
  telling: Telling[];
  looks: Look[][]; // of each query, the heads that give most to another word; of longer texts none
  by: By;
  next: Next[];
  written: number;
  words?: Pass; // of a pass by words: the one by tokens
}

export interface Look {
  layer: number;
  head: number;
  key: number;
  weight: number;
}
interface Telling {
  layer: number;
  head: number;
  links: { query: number; key: number; weight: number }[];
}

// Why a model says a token, and what each layer would have said there. Tensors: heads [L,H,T], cross [L,H,Tk] of an
// encoder-decoder, mlps [L], by_token [T]; of the lens ids and log_probabilities [L+1,1,n].
export type Why = Answered<{
  token: number;
  against: number | null;
  position: number;
  logit: number;
  embedding: number;
  bias: number;
  tokens: string[]; // of the lens
}>;

// What writes into a row of the stream; and what a trace says of it, with the token that a head read.
export interface Part {
  kind: "head" | "cross" | "mlp" | "embedding" | "bias";
  layer?: number;
  head?: number;
}
export interface Traced extends Part {
  key?: number;
  value: number;
  share: number;
}
export interface Trace {
  position: number;
  logit: number;
  heads: { wrote: Traced; score: number; value: number; query: Traced[]; key: Traced[]; read: Traced[] }[];
}
// A score above the mean of what its query sees. Tensors: query and key [A], what each part of a row does to it; pairs [A,A].
export type Reasons = Answered<{ score: number; bias: number; parts: Part[] }>;

export interface CircuitEdge {
  source: string;
  receiver: string;
  score: number;
}
export interface Circuit {
  edges: CircuitEdge[];
  faithfulness: number;
  value: number; // differences of logits: of the circuit, of the text, of the other one
  clean: number;
  corrupt: number;
  against: number;
  against_token: string;
  count: number; // of all edges
  group: number; // so many heads share keys and values
}

export const isExact = (layer: Layer, map: Grid): boolean => map.rows === layer.queries && map.cols === layer.keys;

// What a view answers: what `attend show --json` gives, with the heads that tell most, and of each layer a tensor of maps.
export interface Viewed {
  model: string;
  by: By;
  tokens: string[] | null;
  decoder_tokens: string[] | null;
  layers: Layer[];
  heads: (Omit<Head, "layer"> & { layer: string })[]; // by the layer's name
  telling: Telling[];
  looks: Look[][];
}
// The rest of a pass: what a model said, and where its own words begin, if they do.
export const passOf = ({ tensors, model, by, layers, telling, looks, ...view }: Answered<Viewed>, next: Next[] = [], written?: number): Pass => {
  const [tokens, decoderTokens] = [view.tokens ?? [], view.decoder_tokens ?? []];
  const places = new Map(layers.map(({ name }, layer) => [name, layer]));
  const heads = view.heads.map((head) => ({ ...head, layer: places.get(head.layer)! }) as Head);
  const maps = layers.map((layer, l) => layer.heads.map((_, place) => matrix(tensors[l]!, place)));
  return { model, by, layers, telling, looks, tokens, decoderTokens, heads, maps, next, written: written ?? ownTokens({ tokens, decoderTokens }).length };
};

// A text and what was written after it; of an encoder-decoder that is its decoder's text.
export interface Grown {
  ids: number[];
  decoder_ids?: number[];
  written: number; // where it begins
}

export const sameHead = (a: HeadId, b: HeadId): boolean => a[0] === b[0] && a[1] === b[1];
// Where a head is a sink, the key that takes so much.
export const sinkOf = ({ labels, sink_key }: Head): number | null => (labels.some(({ name }) => name === "sink") ? sink_key : null);
// What a head is called, also beside its sink.
export const labelNames = ({ labels, without_sink }: Head): string[] => [...labels, ...(without_sink?.labels ?? [])].map(({ name }) => name);
export const headOf = (pass: Pass, [layer, head]: HeadId): Head | undefined => pass.heads.find((each) => each.layer === layer && each.head === head);
export const mapOf = (pass: Pass, [layer, head]: HeadId): Grid => pass.maps[layer]![pass.layers[layer]!.heads.indexOf(head)]!;

// What the colours of a head end at: by norm a word may carry more than a row takes in the mean.
export const topOf = (pass: Pass, id: HeadId): number =>
  pass.by === "norm" ? mapOf(pass, id).data.reduce((top, value) => (value > top ? value : top), 1) : 1;

// The text that goes on: of an encoder-decoder its decoder's.
export const ownTokens = ({ tokens, decoderTokens }: Pick<Pass, "tokens" | "decoderTokens">): string[] => (decoderTokens.length > 0 ? decoderTokens : tokens);
// The head of a model's layer that writes into a decoder's own text.
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

// What could not be seen, or would turn the text around, is seen: line ends, control characters, marks of direction.
export const shownToken = (token: string): string =>
  token.replace(/^ +$/, (blanks) => "␣".repeat(blanks.length)).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/[\0-\x1f]/g, (letter) => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(/[\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g, (letter) => `⟨${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`) || "∅";
export const labelText = ({ labels, excess, without_sink }: Head): string => {
  if (labels.length === 0) return "too few words to say what it does";
  const said = (all: Label[]): string => all.map(({ name, value }) => (name in excess ? `${name} ${value.toFixed(2)}` : `${name}, over ${value.toFixed(1)} keys`)).join(", ");
  return said(labels) + (without_sink && without_sink.labels.length > 0 ? `; besides: ${said(without_sink.labels)}` : "");
};
