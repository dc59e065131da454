// What the library computed for each experiment when the class was made (src/class/).
export interface Next {
  token: string;
  probability: number;
}
export interface Row {
  tokens: string[];
  weights: number[];
}
export interface Paris extends Row {
  text: string;
  head: string;
  heads: number; // of the model
  before: Next[];
  after: Next[];
  answer: [number, number]; // before and after
  halving: number; // heads without which the answer is less than half as likely
  capitals: { country: string; capital: string; before: number; after: number }[];
}
export interface Induction {
  names: { alone: string; after: string; token: string; likeliest: Next[]; probabilities: [number, number] }[];
  head: string;
  tokens: string[];
  weights: number[][];
}
export interface Sink extends Row {
  texts: string[];
  share: number;
  even: number;
  heads: number; // in all texts together
  heads_of_half: number;
  lengths: number[];
}
export interface Tired {
  head: string;
  sentences: (Row & { text: string; query: number; meant: "animal" | "street" })[];
  cosine: number;
}
export interface Mask extends Row {
  text: string;
  query: number;
  causal: number[];
}
export interface TwoHeads {
  text: string;
  tokens: string[];
  query: number;
  heads: { head: string; key: number; word: string; weights: number[] }[];
  head_size: number;
}
export interface Translation extends Row {
  source: string;
  written: string[]; // the translation's tokens
  query: number; // that it has just written
  next: string; // and writes then
  head: string;
  matrix: number[][];
}
export interface Root {
  text: string;
  seeds: number;
  sizes: { size: number; spread: number; without: number; with: number }[];
}

export interface Numbers {
  paris: Paris;
  induction: Induction;
  sink: Sink;
  tired: Tired;
  mask: Mask;
  "two-heads": TwoHeads;
  translation: Translation;
  root: Root;
}
export type Id = keyof Numbers;

// What the class's page is given.
export interface Place {
  file: string;
  place: string; // the hash
}
export interface Index {
  id: "index";
  of: Id[];
  pages: string[];
}
export interface Guided<I extends Id = Id> {
  id: I;
  of: Id[];
  numbers: Numbers[I];
  opens: Place;
  goes_on: Place | null;
}

// Whole numbers, but for what would be 0 or 100 then and is not.
export const percent = (share: number): string => {
  const hundredths = share * 100;
  if (hundredths > 0 && hundredths < 0.01) return "<\u00a00.01\u00a0%";
  const digits = hundredths > 0 && hundredths < 0.95 ? hundredths.toPrecision(1) : hundredths > 99.45 && hundredths < 100 ? hundredths.toFixed(1) : hundredths.toFixed(0);
  return `${Number(digits)}\u00a0%`;
};
export const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
// What a reader has who computes with the digits that are shown.
export const rounded = (value: number, digits = 3): number => Number(value.toFixed(digits));
export const fixed = (value: number, digits = 3): string => value.toFixed(digits);
export const shown = (token: string): string => token.trim() || token;
