// Words of the field, explained where they stand.
import { useState } from "preact/hooks";

const glossary = {
  embedding: "A row of numbers that stands for a word. Here it is drawn at random; training would learn it.",
  query: "What a word looks for: its embedding times w_query.",
  key: "What a word offers to be found by: its embedding times w_key.",
  value: "What a word hands over when it is attended to: its embedding times w_value.",
  "dot product": "Two rows multiplied number by number and added up. It is large where they point the same way.",
  score: "The dot product of a query with a key: how well they match.",
  softmax: "Turns any numbers into positive ones that sum to 1: exp of each, divided by the sum of all.",
  logit: "What the softmax sees: the scaled score, or -inf for a key that is hidden.",
  weight: "The share of its attention that a query gives to a key. A query's weights sum to 1.",
  entropy:
    "How spread out a query's weights are, -Σ w ln w, in nats. 0: all on one key. ln n: n keys alike. exp(entropy) counts the keys that it amounts to.",
  "context vector": "What attention gives for a word: the values of all words, each in its share.",
  head: "One attention with matrices of its own. Several look at the same words side by side, each for something else.",
  causal: "A word sees itself and the words before it, as in a model that writes from left to right.",
  "cross-attention": "The queries come from one sentence, the keys and values from another: how a translator reads what it translates.",
} as const;

type GlossaryWord = keyof typeof glossary;

export function Term({ of, children }: { of: GlossaryWord; children?: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="term" aria-expanded={open} onClick={() => setOpen(!open)}>{children ?? of}</button>
      {open && <span class="meaning" role="note"><b>{of}</b> {glossary[of]}</span>}
    </>
  );
}
