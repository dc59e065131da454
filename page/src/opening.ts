// The opening's head with its first sentence, as a trace: MiniLM's own numbers, which scripts/opening_head.py writes.
import type { Request, Trace } from "./engine";
import type { Tensor } from "./memory";
import numbers from "./opening.json";

const tensorOf = (rows: number[] | number[][]): Tensor => ({ shape: Array.isArray(rows[0]) ? [rows.length, rows[0].length] : [rows.length], data: Float32Array.from(rows.flat()) });
// As the library calls words: one that stands there more than once has its place.
const subscript = (place: number): string => [...String(place)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]).join("");
const named = (tokens: string[]): string[] => tokens.map((token, place) => (tokens.indexOf(token) === tokens.lastIndexOf(token) ? token : `${token}${subscript(place + 1)}`));

// Its options are those of a sentence that is typed: one that is changed goes on from there.
export const openingTrace = (defaults: Request): Trace => {
  const { text, tokens, ...tensors } = numbers;
  const labels = named(tokens);
  return {
    preset: null, model: "MiniLM", title: "", tokens, ids: [], tokens_2: [], ids_2: [], labels, key_labels: labels, vocabulary_size: 0, focus: tokens.indexOf("it"), causal: false, weights_in_out: false,
    made: { ...defaults, text, second_text: null } as Trace["made"],
    tensors: Object.fromEntries(Object.entries(tensors).map(([name, rows]) => [name, tensorOf(rows)])),
  };
};
