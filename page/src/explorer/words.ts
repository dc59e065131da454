// Tokens merged to whole words: keys of a word are added up, its queries averaged.
import type { Grid } from "../grid";
import { at } from "../grid";
import type { Pass } from "./model";
import { isExact } from "./model";

// Of each word, its tokens: [begin, end). WordPiece marks what goes on with ##; others a word's begin with a blank.
export const wordsOf = (tokens: string[]): [number, number][] => {
  const isBegun = tokens.some((token) => /^\s\S/.test(token));
  const goesOn = (place: number): boolean => {
    const token = tokens[place]!;
    if (token.startsWith("##")) return true;
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

const joined = (tokens: string[], words: [number, number][]): string[] => words.map(([begin, end]) => tokens.slice(begin, end).map((token, place) => (place > 0 ? token.replace(/^##/, "") : token)).join(""));

// The pass by words, or null where no token goes on another, or maps are not of single pairs.
export const byWords = (pass: Pass): Pass | null => {
  const [words, decoded] = [wordsOf(pass.tokens), wordsOf(pass.decoderTokens)];
  const exact = pass.layers.every((layer, l) => pass.maps[l]!.every((map) => isExact(layer, map)));
  if (!exact || (words.length === pass.tokens.length && decoded.length === pass.decoderTokens.length)) return null;
  const of = (count: number) => (count === pass.tokens.length ? words : decoded);
  const place = (token: number) => words.findIndex(([, end]) => token < end);
  return {
    ...pass,
    tokens: joined(pass.tokens, words),
    decoderTokens: joined(pass.decoderTokens, decoded),
    layers: pass.layers.map((layer) => ({ ...layer, queries: of(layer.queries).length, keys: of(layer.keys).length })),
    heads: pass.heads.map((head) => ({ ...head, sink_key: head.sink_key === null ? null : place(head.sink_key) })),
    maps: pass.maps.map((maps, l) => maps.map((map) => mergedMap(map, of(pass.layers[l]!.queries), of(pass.layers[l]!.keys)))),
    telling: pass.telling.map((head) => ({ ...head, links: head.links.map((link) => ({ ...link, query: place(link.query), key: place(link.key) })) })),
    written: pass.written >= pass.tokens.length ? words.length : place(pass.written),
    words: pass,
  };
};
