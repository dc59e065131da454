// What is looked at: a model that computes a text, or a recording; and how the worker's answers become it.
import type { Grid } from "../grid";
import { at, matrix } from "../grid";
import type { Answered } from "./client";

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
  by: By;
  next: Next[];
  written: number;
  words?: Pass; // of a pass by words: the one by tokens
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
  position: number;
  logit: number;
  embedding: number;
  bias: number;
  tokens: string[]; // of the lens
}>;

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
}
// The rest of a pass: what a model said, and where its own words begin, if they do.
export const passOf = ({ tensors, model, by, layers, telling, ...view }: Answered<Viewed>, next: Next[] = [], written?: number): Pass => {
  const [tokens, decoderTokens] = [view.tokens ?? [], view.decoder_tokens ?? []];
  const places = new Map(layers.map(({ name }, layer) => [name, layer]));
  const heads = view.heads.map((head) => ({ ...head, layer: places.get(head.layer)! }) as Head);
  const maps = layers.map((layer, l) => layer.heads.map((_, place) => matrix(tensors[l]!, place)));
  return { model, by, layers, telling, tokens, decoderTokens, heads, maps, next, written: written ?? ownTokens({ tokens, decoderTokens }).length };
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

// Where a head looks from a query.
interface Look {
  id: HeadId;
  name: string;
  key: number;
  weight: number;
}
const mostLooks = 8;

// Not what a tokenizer added, not marks, not the word itself or its neighbours, which most heads look at for their place,
// and not a head's sink or a decoder's first token: as attend/look.h tells heads.
const isWord = (token: string): boolean => /[\p{L}\p{N}]/u.test(token) && !/^(\[\w+\]|<.*>)$/.test(token.trim());
export const looksOf = (pass: Pass, query: number): Look[] =>
  pass.heads
    .flatMap((own): Look[] => {
      const { layer, head, name } = own;
      const map = mapOf(pass, [layer, head]);
      if (pass.layers[layer]!.kind === "cross" || !isExact(pass.layers[layer]!, map) || query >= map.rows) return [];
      const tokens = keysOf(pass, layer);
      const causal = map.cols > 1 && Number.isNaN(at(map, 0, 1));
      const sink = sinkOf(own);
      const places = tokens.map((_, key) => key).filter((key) => Math.abs(key - query) > 1 && key !== sink && !(causal && key === 0) && isWord(tokens[key]!) && at(map, query, key) > 0);
      if (places.length === 0) return [];
      const key = places.reduce((best, place) => (at(map, query, place) > at(map, query, best) ? place : best));
      return [{ id: [layer, head], name, key, weight: at(map, query, key) }];
    })
    .sort((a, b) => b.weight - a.weight)
    .slice(0, mostLooks);

// What could not be seen, or would turn the text around, is seen: line ends, control characters, marks of direction.
export const shownToken = (token: string): string =>
  token.replace(/^ +$/, (blanks) => "␣".repeat(blanks.length)).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/[\0-\x1f]/g, (letter) => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(/[\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g, (letter) => `⟨${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`) || "∅";
export const labelText = ({ labels, excess, without_sink }: Head): string => {
  if (labels.length === 0) return "too few words to say what it does";
  const said = (all: Label[]): string => all.map(({ name, value }) => (name in excess ? `${name} ${value.toFixed(2)}` : `${name}, over ${value.toFixed(1)} keys`)).join(", ");
  return said(labels) + (without_sink && without_sink.labels.length > 0 ? `; besides: ${said(without_sink.labels)}` : "");
};
