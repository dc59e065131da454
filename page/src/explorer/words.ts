// Tokens merged to whole words: keys of a word are added up, its queries averaged.
import type { Grid } from "../grid";
import { at } from "../grid";
import type { Pass } from "./model";
import { isExact } from "./model";

// Tokens of one character's bytes say it and which part of it they are (Tokenizer::texts()): "猫 1/2".
const part = /^(.*) (\d)\/\d$/su;

// Of each word, its tokens: [begin, end). WordPiece marks what goes on with ##; others a word's begin with a blank.
export const wordsOf = (tokens: string[]): [number, number][] => {
  const isBegun = tokens.some((token) => /^\s\S/.test(token));
  const goesOn = (place: number): boolean => {
    const token = tokens[place]!;
    if (token.startsWith("##")) return true;
    if (part.test(token)) return part.exec(token)![2] !== "1";
    return isBegun && place > 0 && /^[\p{L}\p{N}\p{M}'’]/u.test(token) && /[\p{L}\p{N}\p{M}]$/u.test(tokens[place - 1]!);
  };
  const words: [number, number][] = [];
  tokens.forEach((_, place) => {
    if (words.length > 0 && goesOn(place)) words.at(-1)![1] = place + 1;
    else words.push([place, place + 1]);
  });
  return words;
};

const mergedMap = (map: Grid, rows: [number, number][], cols: [number, number][]): Grid => {
  const data = new Float32Array(rows.length * cols.length);
  rows.forEach(([first, last], r) =>
    cols.forEach(([begin, end], c) => {
      let [sum, seen] = [0, 0];
      for (let i = first; i < last; ++i)
        for (let j = begin; j < end; ++j) {
          const value = at(map, i, j);
          if (!Number.isNaN(value)) (sum += value), ++seen;
        }
      data[r * cols.length + c] = seen > 0 ? sum / (last - first) : NaN;
    }),
  );
  return { rows: rows.length, cols: cols.length, data };
};

const textOf = (token: string, place: number): string => {
  const [, whole, number] = part.exec(token) ?? [];
  if (whole !== undefined) return number === "1" ? whole : "";
  return place > 0 ? token.replace(/^##/, "") : token;
};
const joined = (tokens: string[], words: [number, number][]): string[] => words.map(([begin, end]) => tokens.slice(begin, end).map(textOf).join(""));

// The pass by words, or null where no token goes on another, or maps are not of single pairs.
export const byWords = (pass: Pass): Pass | null => {
  const [words, decoded] = [wordsOf(pass.tokens), wordsOf(pass.decoderTokens)];
  const exact = pass.layers.every((layer, l) => pass.maps[l]!.every((map) => isExact(layer, map)));
  if (!exact || (words.length === pass.tokens.length && decoded.length === pass.decoderTokens.length)) return null;
  const of = (count: number) => (count === pass.tokens.length ? words : decoded);
  const place = (token: number) => words.findIndex(([, end]) => token < end);
  const maps = pass.maps.map((own, l) => own.map((map) => mergedMap(map, of(pass.layers[l]!.queries), of(pass.layers[l]!.keys))));
  // Where a word's tokens look, a head once.
  const looks = words.map(([begin, end], query) =>
    pass.looks.slice(begin, end).flat().map((look) => ({ ...look, key: place(look.key) })).filter(({ key }) => Math.abs(key - query) > 1)
      .map((look) => ({ ...look, weight: at(maps[look.layer]![pass.layers[look.layer]!.heads.indexOf(look.head)]!, query, look.key) }))
      .sort((a, b) => b.weight - a.weight).filter(({ layer, head }, n, all) => all.findIndex((other) => other.layer === layer && other.head === head) === n),
  );
  return {
    ...pass,
    maps,
    looks,
    tokens: joined(pass.tokens, words),
    decoderTokens: joined(pass.decoderTokens, decoded),
    layers: pass.layers.map((layer) => ({ ...layer, queries: of(layer.queries).length, keys: of(layer.keys).length })),
    heads: pass.heads.map((head) => ({ ...head, sink_key: head.sink_key === null ? null : place(head.sink_key) })),
    telling: pass.telling.map((head) => ({ ...head, links: head.links.map((link) => ({ ...link, query: place(link.query), key: place(link.key) })) })),
    written: pass.written >= pass.tokens.length ? words.length : place(pass.written),
    words: pass,
  };
};
