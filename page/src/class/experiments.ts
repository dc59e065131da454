// Which of an experiment's answers is the right one, by what was computed. Their words: words/.
import type { Id, Numbers } from "./numbers";
import { sum } from "./numbers";

const largest = (values: number[]): number => values.indexOf(Math.max(...values));
// The place of the first limit that the value is below.
const below = (value: number, limits: number[]): number => {
  const place = limits.findIndex((limit) => value < limit);
  return place < 0 ? limits.length : place;
};
const nearest = (value: number, options: number[]): number => largest(options.map((option) => -Math.abs(option - value)));

// What the second sentence's head may give most to: its two nouns, and what else gets most.
export const tiredOptions = ({ sentences }: Numbers["tired"]): string[] => {
  const { tokens, weights, query } = sentences[1]!;
  const others = tokens.map((token, key) => (key === query || token === "animal" || token === "street" ? -1 : weights[key]!));
  return ["animal", "street", tokens[largest(others)]!];
};
export const given = ({ tokens, weights }: { tokens: string[]; weights: number[] }, word: string): number => weights[tokens.indexOf(word)]!;

export const sinkOptions = ({ even }: Numbers["sink"]): number[] => [even, 0.35, 0.6, 0.9];
export const twoHeadsOptions = [0, 0.333, 0.5, 1]; // what is left of a row

export const rightOf: { [I in Id]: (numbers: Numbers[I]) => number } = {
  paris: ({ answer: [before, after] }) => 3 - below(after / before, [0.25, 0.8, 1.02]),
  induction: ({ names }) => below(names[0]!.probabilities[1], [0.01, 0.25, 0.75]),
  sink: (numbers) => nearest(numbers.share, sinkOptions(numbers)),
  tired: (numbers) => largest(tiredOptions(numbers).map((word) => given(numbers.sentences[1]!, word))),
  mask: ({ weights, causal, query }) => {
    const seen = weights.slice(0, query + 1).map((weight, key) => causal[key]! / weight);
    const alike = (values: number[]) => Math.max(...values) - Math.min(...values) < 1e-3 * Math.max(...values);
    return alike(causal.slice(0, query + 1)) ? 2 : alike(seen) ? (Math.abs(seen[0]! - 1) < 1e-3 ? 0 : 1) : 3;
  },
  "two-heads": ({ heads: [one] }) => nearest(1 - one!.weights[one!.key]!, twoHeadsOptions),
  translation: ({ weights }) => largest(weights),
  root: ({ sizes }) => {
    const [short, long] = [sizes[0]!.without, sizes.at(-1)!.without];
    return long > 0.99 ? 3 : below(long / short, [0.7, 1.3]);
  },
};

// What the second sentence's rows give to what followed the same token before: the stripe of an induction head.
export const stripeOf = ({ weights }: Numbers["induction"]): number[] => {
  const half = weights.length / 2;
  return weights.slice(half).map((row, n) => row[n + 1]!);
};
export const meanOf = (values: number[]): number => sum(values) / values.length;
