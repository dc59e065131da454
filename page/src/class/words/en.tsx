import type { ComponentChildren } from "preact";
import { counted } from "../../counted";
import { given, sinkOptions, stripeOf, tiredOptions, twoHeadsOptions } from "../experiments";
import type { Id, Numbers } from "../numbers";
import { fixed, percent, rounded, shown, sum } from "../numbers";

// What an experiment says, in its order on the page.
interface Guide<N> {
  title: string;
  teaser: string; // for the list of all
  setting: (numbers: N) => ComponentChildren; // what is looked at
  question: (numbers: N) => ComponentChildren;
  options: (numbers: N) => string[];
  why: (numbers: N) => ComponentChildren;
  hand: (numbers: N) => ComponentChildren; // how to check it with pencil and calculator
  further: (numbers: N) => ComponentChildren; // what to try on the page that it opens
}
export interface Words {
  name: string; // of the class
  lead: string;
  offline: string;
  cannotRun: (error: string) => string;
  of: (number: number, count: number) => string;
  predict: string;
  yes: string;
  no: (right: string) => string;
  again: string;
  computed: string;
  why: string;
  hand: string;
  further: string;
  here: string; // opens the other page within this one
  alone: string;
  recorded: string; // of a page that shows a recorded pass
  live: string;
  all: string;
  previous: string;
  next: string;
  languages: string;
  pages: Record<"lesson.html" | "minilm.html" | "smollm2.html", string>;
  figure: {
    next: string;
    without: (head: string) => string;
    withAll: string;
    row: (word: string, head?: string) => string;
    meanRow: (word: string) => string;
    map: (head: string) => string;
    country: string;
    capital: string;
    text: string;
    alone: string;
    after: string;
    token: string;
    meant: string;
    most: string;
    size: string;
    spread: string;
    divided: string;
    undivided: string;
    masked: string;
    unmasked: string;
  };
  guides: { [I in Id]: Guide<Numbers[I]> };
}

// "0.44 + 0.01 + ... = 1.00", as the digits shown add up.
export const added = (values: number[], digits: number): string =>
  `${values.map((value) => fixed(value, digits)).join(" + ")} = ${fixed(sum(values.map((value) => rounded(value, digits))), digits)}`;
// Odds of a probability, both as they are shown.
export const odds = (share: number, digits: number): number => rounded(rounded(share) / (1 - rounded(share)), digits);

export const en: Words = {
  name: "A class on attention",
  lead: "Eight experiments on real models. Each asks what you expect, then shows what was computed, says why, and how to check it by hand.",
  offline: "Everything is in this folder. Nothing is loaded from a network, and nothing that you type leaves the machine.",
  cannotRun: (error) => `This browser can't run the page (${error}); what follows are its links.`,
  of: (number, count) => `Experiment ${number} of ${count}`,
  predict: "Predict",
  yes: "Yes.",
  no: (right) => `It is: ${right}.`,
  again: "Predict again",
  computed: "What was computed",
  why: "Why",
  hand: "Check it by hand",
  further: "Look further",
  here: "Open it here",
  alone: "Open it in a page of its own",
  recorded: "This page shows a pass that was recorded when the class was made. It computes no other text.",
  live: "This page computes whatever you type.",
  all: "All experiments",
  previous: "Previous",
  next: "Next",
  languages: "Language",
  pages: {
    "lesson.html": "The lesson: attention step by step, every number worked out",
    "minilm.html": "The explorer: every head of MiniLM, with any sentence",
    "smollm2.html": "The explorer with SmolLM2: any text, what comes next, and why",
  },
  figure: {
    next: "what comes next",
    without: (head) => `without head ${head}`,
    withAll: "with all heads",
    row: (word, head) => `What “${word}” gives to each word${head ? ` in head ${head}` : ""}`,
    meanRow: (word) => `What “${word}” gives to each token, in the mean over all heads`,
    map: (head) => `Head ${head}: each row is a token that looks, each column one that is looked at`,
    country: "country",
    capital: "capital",
    text: "text",
    alone: "alone",
    after: "after the sentence",
    token: "token",
    meant: "“it” is",
    most: "the head gives most to",
    size: "numbers in a query",
    spread: "spread of the scores",
    divided: "largest weight, divided by √d",
    undivided: "largest weight, not divided",
    masked: "with the mask",
    unmasked: "without a mask",
  },
  guides: {
    paris: {
      title: "Paris without one head",
      teaser: "One of 270 heads is taken out. Does the model still know the capital of France?",
      setting: ({ heads, answer, head }) => (
        <p>
          SmolLM2 is a small language model. It reads “The capital of France is” and gives Paris a probability of {percent(answer[0])}. The model has {heads} heads.
          We take one out: head {head}, which is head 4 of layer 23 (both counted from 0). That head then writes zeros. Nothing else changes.
        </p>
      ),
      question: () => "What becomes of Paris?",
      options: ({ answer: [before] }) => [
        `It rises above ${percent(before)}`, `It stays near ${percent(before)}`, `It falls to about half, ${percent(before / 2)}`, `It falls below a quarter of that, ${percent(before / 4)}`,
      ],
      why: ({ head, tokens, weights, halving, heads, capitals }) => (
        <>
          <p>
            In the row of “is” head {head} gives {percent(weights[tokens.length - 2]!)} to “France”. It reads what earlier layers wrote there, and adds it to the row that the
            answer is read from.
          </p>
          <p>
            One sentence proves no claim. Without the head {capitals.filter(({ before, after }) => after < before).length} of these {capitals.length} capitals become less likely.
            We also took out each of the {heads} heads by itself: {halving} of them make Paris less than half as likely, this one most. So the head matters. It does not know capitals
            alone: Paris is still the likeliest token without it.
          </p>
        </>
      ),
      hand: ({ answer: [before, after] }) => {
        const [one, two] = [odds(before, 2), odds(after, 3)];
        return (
          <p>
            Odds are p / (1 − p). Before: {fixed(before)} / {fixed(1 - before)} = {fixed(one, 2)}. After: {fixed(after)} / {fixed(1 - after)} = {fixed(two)}. Take the natural logarithm of
            their ratio: ln({fixed(one, 2)} / {fixed(two)}) = {fixed(Math.log(one / two), 2)}. By so much the logit of Paris fell beside all other tokens together.
          </p>
        );
      },
      further: ({ head }) => <p>Choose other heads in the row of “is”. Which of them look at “France” as head {head} does?</p>,
    },
    induction: {
      title: "A name that nobody knows",
      teaser: "A made-up name is cut off in the middle. How can the model go on?",
      setting: ({ names: [name] }) => (
        <p>
          We made up the name “Zorvak”. After “{name!.alone}” alone SmolLM2 finds “{shown(name!.likeliest[0]!.token)}” likeliest ({percent(name!.likeliest[0]!.probability)}).
          The token “{name!.token}” gets {percent(name!.probabilities[0])}. Now the model reads “{name!.after}”.
        </p>
      ),
      question: ({ names: [name] }) => <>How likely is “{name!.token}” now?</>,
      options: () => ["Below 1 %", "About 10 %", "About a half", "Above 75 %"],
      why: (numbers) => (
        <>
          <p>
            The model looks for what came after the same token before, and copies it. Heads that do so are called induction heads (Olsson et al. 2022). In the map of head{" "}
            {numbers.head} the tokens of the second sentence look at what followed the same token in the first: a stripe below the diagonal.
          </p>
          <p>
            The stripe gets {percent(stripeOf(numbers))} of what the second sentence gives, in the mean. Where there is nothing to copy the head looks at the first token: the next
            experiment is about that. All three names work, so the model did not know them by heart.
          </p>
        </>
      ),
      hand: ({ tokens }) => (
        <p>
          The sentence has {tokens.length / 2} tokens and stands twice. A token at place t stood at t − {tokens.length / 2} before, and what followed it at t − {tokens.length / 2 - 1}.
          So the stripe lies {tokens.length / 2 - 1} places left of the diagonal. Count it in the map.
        </p>
      ),
      further: ({ head }) => <p>Find the stripe in the map of head {head}. Then look through the small maps of all heads: which others have it?</p>,
    },
    sink: {
      title: "The first token takes most",
      teaser: "Where do heads look when there is nothing to read?",
      setting: ({ texts, even }) => (
        <p>
          SmolLM2 reads {texts.length} short texts. A token sees itself and what stands before it. If each token shared its attention evenly among all that it sees, the first one
          would get {percent(even)}, in the mean over all rows but the first.
        </p>
      ),
      question: () => "What does the first token get in truth, in the mean over all heads?",
      options: (numbers) => sinkOptions(numbers).map((share) => `About ${percent(share)}`),
      why: ({ share, lengths, heads, heads_of_half }) => (
        <>
          <p>
            It gets {percent(share)}. A head’s weights must sum to 1, also where it finds nothing to read. It then looks at a token that does no harm: an attention sink (Xiao et al.
            2023). The values of the first token are short here, {fixed(Math.min(...lengths), 2)} to {fixed(Math.max(...lengths), 2)} of the mean length of the others. What it hands
            over is little.
          </p>
          <p>Heads differ: in {heads_of_half} of {heads} maps the first token gets more than half.</p>
        </>
      ),
      hand: ({ weights, lengths }) => (
        <p>
          Add up the row: {added(weights, 2)}. It is 1, but for rounding. Multiply the first share by the length of its values:{" "}
          {fixed(weights[0]!, 2)} × {fixed(lengths[2]!, 2)} = {fixed(rounded(weights[0]!, 2) * rounded(lengths[2]!, 2), 2)}. Counted by what is carried, the first token is no longer so large.
        </p>
      ),
      further: () => <p>Switch from “by weight” to “by norm”, which counts what is carried. What is left of the first column?</p>,
    },
    tired: {
      title: "Tired and wide",
      teaser: "A head seems to know what “it” means. Try to prove it wrong.",
      setting: ({ head, sentences: [first] }) => (
        <p>
          In “{first!.text}” the word “it” is the animal. Head {head} of MiniLM gives “animal” {percent(given(first!, "animal"))} of the attention of “it”. It looks as if the head had
          understood. Now we put “wide” for “tired”, and “it” is the street.
        </p>
      ),
      question: () => "What does the head give most to now?",
      options: (numbers) => tiredOptions(numbers),
      why: ({ head, sentences, cosine }) => (
        <>
          <p>
            Head {head} prefers the noun that stands first. Turn the sentence round, and it gives “street” {percent(given(sentences[2]!, "street"))}, though “it” is the animal there.
            Over {counted.sentences} such sentences it is right in {counted.right}, as a coin would be. The best of all 72 heads is right in {counted.best}; if all of them guessed, the best
            would be right in some {counted.guessed}.
          </p>
          <p>
            Does the head matter at all? Without it the vector that MiniLM makes of the first sentence has a cosine of {fixed(cosine, 4)} to what it was. Next to nothing changed.
          </p>
        </>
      ),
      hand: ({ sentences }) => (
        <p>
          For each of the four sentences compare what “animal” and “street” get, and mark whether the larger is what “it” means:{" "}
          {sentences.map((each) => `${fixed(given(each, "animal"), 2)} and ${fixed(given(each, "street"), 2)}`).join("; ")}. How many marks do you have of four?
        </p>
      ),
      further: () => <p>Write a sentence of your own with “it” and two nouns. Guess first, then look. Can you find a head that is right in all of yours?</p>,
    },
    mask: {
      title: "What a causal mask does",
      teaser: "Words are hidden. What happens to the weights of the others?",
      setting: ({ text, tokens, query, weights }) => (
        <p>
          The lesson computes “{text}” with random weights. The word “{tokens[query]}” gives “{tokens[1]}” {fixed(weights[1]!)}. A causal mask hides all words after “{tokens[query]}”,
          as in a model that writes from left to right.
        </p>
      ),
      question: ({ tokens, query }) => <>What happens to what “{tokens[query]}” gives to the words that it still sees?</>,
      options: ({ query }) => ["Nothing changes", "All grow by the same factor", `Each becomes 1/${query + 1}`, "They change in no simple way"],
      why: () => (
        <p>
          Softmax divides each exponential by the sum of all. The mask takes the hidden ones out of that sum, and leaves the scores as they are. The exponentials of the rest stay, and
          are divided by a smaller sum: all grow by the same factor.
        </p>
      ),
      hand: ({ weights, causal, query, tokens }) => {
        const seen = weights.slice(0, query + 1);
        return (
          <p>
            Add up what the seen words had: {added(seen, 3)}. Divide: {fixed(seen[1]!)} / {fixed(sum(seen))} = {fixed(seen[1]! / sum(seen))}. With the mask “{tokens[1]}” gets {fixed(causal[1]!)}.
          </p>
        );
      },
      further: () => <p>Switch the mask on and off, and watch the rows. Which row does not change at all?</p>,
    },
    "two-heads": {
      title: "What a second head is for",
      teaser: "One row of weights sums to 1. What does a second one buy?",
      setting: ({ text, heads: [one, two] }) => (
        <p>
          In “{text}” head {one!.head} of MiniLM gives “{one!.word}” {fixed(one!.weights[one!.key]!)} of the attention of “it”. Suppose that “it” also needs the word “{two!.word}”.
        </p>
      ),
      question: ({ heads: [one, two] }) => <>How much can head {one!.head} give to “{two!.word}” in this row, at most?</>,
      options: () => twoHeadsOptions.map((share) => fixed(share)),
      why: ({ heads: [one, two], head_size }) => (
        <p>
          The weights of a row sum to 1. Head {one!.head} has given nearly all of it. Head {two!.head} has a row of its own for the same word, with queries and keys of its own: it gives “
          {two!.word}” {fixed(two!.weights[two!.key]!)}. Both context vectors go on side by side, {head_size} numbers from each head. One head could only mix the two words.
        </p>
      ),
      hand: ({ heads: [one, two] }) => (
        <p>
          1 − {fixed(one!.weights[one!.key]!)} = {fixed(1 - one!.weights[one!.key]!)} is left in head {one!.head}. A single head that wanted both words equally could give each 0.500 at
          most. The two heads give {fixed(one!.weights[one!.key]!)} and {fixed(two!.weights[two!.key]!)}.
        </p>
      ),
      further: () => <p>Type another sentence. Do the two heads still look at the word before and the word after?</p>,
    },
    translation: {
      title: "What a translator reads",
      teaser: "Which English word is read when an Italian one is written?",
      setting: ({ source, written, query }) => (
        <p>
          A small translator, trained with this library, reads “{source}” and writes Italian, token by token. It has just written “{shown(written[query]!)}”. In cross-attention its
          query comes from the Italian, and the keys and values come from the English.
        </p>
      ),
      question: ({ next, head }) => <>It writes “{shown(next)}” next. Which English token does head {head} give most to?</>,
      options: ({ tokens }) => tokens.map(shown),
      why: ({ next, tokens, weights }) => (
        <p>
          Nobody told the model which words belong together. It learned that “{shown(next)}” comes from “{shown(tokens[weights.indexOf(Math.max(...weights))]!)}”, as looking there
          made its predictions better. The row of a token is where the next one is written. Italian puts the adjective behind the noun, so two rows cross. This is one sentence: the
          example translate of attend’s repository records others.
        </p>
      ),
      hand: ({ weights, written, tokens }) => (
        <p>
          Add up the row: {added(weights, 2)}. Then count: the map has a row for each Italian token, {written.length}, and a column for each English one, {tokens.length}. Here they happen to
          be as many.
        </p>
      ),
      further: () => <p>Choose the other rows one after another. Where do they cross? Which heads of the same layer look elsewhere?</p>,
    },
    root: {
      title: "Why divide by √d",
      teaser: "Longer queries make larger scores. What does softmax do with them?",
      setting: ({ sizes, seeds }) => (
        <p>
          A score is a sum of products, one for each number of a query. In the lesson’s sentence a query has {sizes[0]!.size} numbers. Without a division the largest weight of a row is{" "}
          {fixed(sizes[0]!.without, 2)}, in the mean over its rows (the median of {seeds} random draws). Now we make queries longer: {sizes.at(-1)!.size} numbers.
        </p>
      ),
      question: () => "What becomes of the largest weight, still without a division?",
      options: ({ sizes: [short] }) => [
        "It falls, as the attention spreads", `It stays near ${fixed(short!.without, 2)}`, `It grows to more than 1.3 times as much, ${fixed(1.3 * short!.without, 2)}`, "It becomes 1.00",
      ],
      why: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            The more products, the wider the scores spread: {fixed(short.spread, 2)} with {short.size} numbers, {fixed(long.spread, 2)} with {long.size}. Softmax of wide scores gives nearly
            all to one key. Divided by √d the scores keep their spread, and the largest weight stays: {fixed(short.with, 2)} and {fixed(long.with, 2)}. This holds where the products are
            independent and 0 in the mean, as the lesson’s are.
          </p>
        );
      },
      hand: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            √({long.size} / {short.size}) = {fixed(Math.sqrt(long.size / short.size), 2)}, and the spreads have the ratio {fixed(long.spread, 2)} / {fixed(short.spread, 2)} ={" "}
            {fixed(long.spread / short.spread, 2)}. Divided: {fixed(short.spread, 2)} / √{short.size} = {fixed(short.spread / Math.sqrt(short.size), 2)}, and {fixed(long.spread, 2)} / √
            {long.size} = {fixed(long.spread / Math.sqrt(long.size), 2)}.
          </p>
        );
      },
      further: () => <p>Switch “scale” on and off, and watch the entropy of a row. Then choose another size.</p>,
    },
  },
};
