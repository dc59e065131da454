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
  sink: "A head whose queries mostly look at one key that holds next to nothing, such as the first token: it does nothing then.",
  besides: "What a head does where it does not look at its sink: told of the rest of its weights.",
  previous: "A head that looks at the token before.",
  duplicate: "A head that looks at where the same token stood before.",
  induction: "A head that looks at what came after the same token before: so it can repeat what was read.",
  local: "A head that looks at the few tokens around.",
  broad: "A head that spreads its weights over many keys; a focused one gives nearly all to a few.",
  lift: "What a token receives, beside what it would if every row were spread evenly over what it sees: above 1 it is looked at more often.",
  norm: "A weight times the size of what the key carries, beside what a row of the head takes in the mean (Kobayashi et al. 2020).",
  causal: "A word sees itself and the words before it, as in a model that writes from left to right.",
  "cross-attention": "The queries come from one sentence, the keys and values from another: how a translator reads what it translates.",
} as const;

type GlossaryWord = keyof typeof glossary;

// Several together.
export const Glossary = ({ of }: { of: readonly GlossaryWord[] }) => (
  <details class="glossary">
    <summary>What the words mean</summary>
    <dl>{of.map((word) => [<dt key={word}>{word}</dt>, <dd key={`${word}:`}>{glossary[word]}</dd>])}</dl>
  </details>
);

export function Term({ of, children }: { of: GlossaryWord; children?: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="term" aria-expanded={open} onClick={() => setOpen(!open)}>{children ?? of}</button>
      {open && <span class="meaning" role="note"><b>{of}</b> {glossary[of]}</span>}
    </>
  );
}
