import type { ComponentChildren } from "preact";
import { counted } from "../../counted";
import type { PredictionWords } from "../../prediction";
import { given, meanOf, sinkOptions, stripeOf, tiredOptions, twoHeadsOptions } from "../experiments";
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
  further: (numbers: N, live: boolean) => ComponentChildren; // what to try on the page that it opens; live: SmolLM2 computes there
}
export interface Words {
  name: string; // of the class
  lead: string;
  offline: string;
  cannotRun: (error: string) => string;
  of: (number: number, count: number) => string;
  terms: { title: string; list: [string, string][] };
  prediction: PredictionWords;
  computed: string;
  why: string;
  hand: string;
  further: string;
  here: string; // opens the other page within this one
  alone: string;
  recorded: string; // of a page that shows a recorded pass
  live: string;
  eightBits: string; // of a page with MiniLM in it
  all: string;
  previous: string;
  next: string;
  languages: string;
  pages: Record<"lesson.html" | "minilm.html" | "smollm2.html", string>;
  figure: {
    nextOf: (text: string, how?: string) => string;
    without: (head: string) => string;
    withAll: string;
    row: (word: string, head?: string, how?: string) => string;
    meanRow: (word: string) => string;
    map: (head: string) => string;
    given: (meant: string, most: string) => string;
    country: string;
    capital: string;
    text: string;
    alone: string;
    after: string;
    token: string;
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
// The division of two numbers, both as they are shown.
export const divided = (a: number, b: number, digits: number): string => fixed(rounded(a, digits) / rounded(b, digits), digits);
// Odds of a probability, both as they are shown.
export const odds = (share: number, digits: number): number => rounded(rounded(share) / (1 - rounded(share)), digits);

export const en: Words = {
  name: "A class on attention",
  lead: "Eight experiments: six on trained models, two on random numbers. Each asks what you expect, then shows what was computed, says why, and how to check it by hand.",
  offline: "Everything is in this folder. Nothing is loaded from a network, and nothing that you type leaves the machine.",
  cannotRun: (error) => `This browser can't run the page (${error}); what follows are its links.`,
  of: (number, count) => `Experiment ${number} of ${count}`,
  terms: {
    title: "Words that you need",
    list: [
      ["token", "A piece of text that the model reads as one: a word, a part of one, or a mark such as [CLS]."],
      ["layer", "A step of the model. Every layer changes the numbers that stand for each token."],
      ["head", "One attention of a layer. “Head 23.4” is head 4 of layer 23; both are counted from 0."],
      ["query, key, value", "Rows of numbers that a head makes of each token: what the token looks for, what it offers to be found by, and what it hands over."],
      ["score", "How well a query and a key match: their products, added up."],
      ["softmax", "Makes shares of scores: e to the power of each, divided by the sum of all of these."],
      ["weight", "The share of its attention that a token gives to another one. The weights of a row sum to 1."],
      ["logit", "The number from which the model makes the probability of a next token, by softmax."],
    ],
  },
  prediction: { title: "Predict", yes: "Yes.", no: (right) => `It is: ${right}.`, again: "Predict again" },
  computed: "What was computed",
  why: "Why",
  hand: "Check it by hand",
  further: "Look further",
  here: "Open it here",
  alone: "Open it in a page of its own",
  recorded: "This page shows a pass that was recorded when the class was made. It computes no other text.",
  live: "This page computes whatever you type.",
  eightBits: "This page computes whatever you type. It keeps MiniLM’s numbers in 8 bits, so its digits differ a little from those above.",
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
    nextOf: (text, how) => `“${text}”: what comes next${how ? `, ${how}` : ""}`,
    without: (head) => `without head ${head}`,
    withAll: "with all heads",
    row: (word, head, how) => `What “${word}” gives to each token${head ? ` in head ${head}` : ""}${how ? `, ${how}` : ""}`,
    meanRow: (word) => `What “${word}” gives to each token of the third text, in the mean over all heads`,
    map: (head) => `Head ${head}: each row is a token that looks, each column one that is looked at`,
    given: (meant, most) => `“it” is the ${meant}; the head gives most to ${most}`,
    country: "country",
    capital: "capital",
    text: "text",
    alone: "alone",
    after: "after the sentence",
    token: "token",
    size: "numbers in a query",
    spread: "standard deviation of the scores",
    divided: "largest weight, scores divided by √d",
    undivided: "largest weight, scores not divided",
    masked: "with the mask",
    unmasked: "without a mask",
  },
  guides: {
    paris: {
      title: "Paris without one head",
      teaser: "One of 270 heads is taken out. Does the model still know the capital of France?",
      setting: ({ heads, answer, head }) => (
        <p>
          SmolLM2 is a small language model. It reads “The capital of France is” and gives Paris a probability of {percent(answer[0])}. The model has {heads} heads. We take one out:
          head {head}, which is head 4 of layer 23. What that head would add to each token is set to 0. Nothing else changes.
        </p>
      ),
      question: () => "What becomes of Paris?",
      options: ({ answer: [before] }) => [
        `It rises above ${percent(before)}`, `It stays near ${percent(before)}`, `It falls to about ${percent(before / 2)}`, `It falls below ${percent(before / 4)}`,
      ],
      why: ({ head, tokens, weights, halving, heads, capitals }) => (
        <>
          <p>
            In the row of “is” head {head} gives {percent(weights[tokens.length - 2]!)} to “France”. Without the head other cities rise, such as London and Tokyo. So what was lost is
            not that a city follows. It is which one.
          </p>
          <p>
            One sentence proves no claim. Without the head {capitals.filter(({ before, after }) => after < before).length} of these {capitals.length} capitals become less likely. We also
            took out each of the {heads} heads by itself. Without {halving} of them Paris is less than half as likely, and this one lowers it most. So the head matters. It does not know
            capitals alone: Paris is still the likeliest token without it.
          </p>
        </>
      ),
      hand: ({ answer: [before, after] }) => {
        const [one, two] = [odds(before, 2), odds(after, 3)];
        return (
          <p>
            {percent(before)} is {fixed(before)}, and {percent(after)} is {fixed(after)}. Odds are p / (1 − p). Before: {fixed(before)} / {fixed(1 - before)} = {fixed(one, 2)}. After:{" "}
            {fixed(after)} / {fixed(1 - after)} = {fixed(two)}. Take the natural logarithm of their ratio: ln({fixed(one, 2)} / {fixed(two)}) = {fixed(Math.log(one / two), 2)}. By so
            much the logit of Paris fell, compared with all other tokens together.
          </p>
        );
      },
      further: ({ head }, live) =>
        live
          ? <p>Press “Take it out” for head {head}, and watch what comes next. Put it back, and take out another head, such as 16.0. Then type another country.</p>
          : <p>Head {head} is shown, in the row of “is”. Scroll to the squares and click others, 16.0 and 1.2 among them. Which look at “France” as well?</p>,
    },
    induction: {
      title: "A name that nobody knows",
      teaser: "A made-up name is cut off in the middle. How can the model go on?",
      setting: ({ names: [name] }) => (
        <p>
          We made up the name “Zorvak”. After “{name!.alone}” alone SmolLM2 finds “{shown(name!.likeliest[0]!.token)}” likeliest ({percent(name!.likeliest[0]!.probability)}). The token “
          {name!.token}” gets {percent(name!.probabilities[0])}. Now the model reads “{name!.after}”.
        </p>
      ),
      question: ({ names: [name] }) => <>How likely is “{name!.token}” now?</>,
      options: () => ["Below 1 %", "About 10 %", "About a half", "Above 75 %"],
      why: (numbers) => (
        <>
          <p>
            Alone, the model gave each of these tokens at most {percent(Math.max(...numbers.names.map(({ probabilities }) => probabilities[0])))}. It did not know the names. After the
            sentence it can copy: look for what came after the same token before, and write that. Heads that look there are called induction heads (Olsson et al. 2022).
          </p>
          <p>
            The map shows head {numbers.head} on a sentence that stands twice. In {stripeOf(numbers).filter((share) => share > 0.5).length} of the {stripeOf(numbers).length} rows of the
            second sentence more than half goes to what followed the same token before: a stripe below the diagonal, {percent(meanOf(stripeOf(numbers)))} in the mean. In the first
            sentence, where there is nothing to copy, nearly all goes to the first token. A map shows where a head looks; it does not prove that this head alone does the copying.
          </p>
        </>
      ),
      hand: ({ tokens }) => (
        <p>
          The map’s sentence, “{tokens.slice(0, tokens.length / 2).join("").trim()}”, has {tokens.length / 2} tokens and stands twice. A token at place t stood at t −{" "}
          {tokens.length / 2} before, and what followed it at t − {tokens.length / 2 - 1}. So the stripe lies {tokens.length / 2 - 1} columns left of the diagonal. Count the columns.
        </p>
      ),
      further: ({ head }, live) =>
        live
          ? <p>Write a name of your own, a sentence about it, and the name’s beginning. Does the model go on? Take out head {head}: does it still?</p>
          : <p>Find the stripe in the map of head {head}. Then look through the squares of all heads: which others have it?</p>,
    },
    sink: {
      title: "The first token takes most",
      teaser: "Where do heads look when there is nothing to read?",
      setting: ({ texts, even }) => (
        <p>
          SmolLM2 reads {texts.length} short texts. A token sees itself and what stands before it. If each token shared its attention evenly among all that it sees, the first one would
          get {percent(even)}, in the mean over all rows but the first.
        </p>
      ),
      question: () => "What does the first token get in truth, in the mean over all rows, heads and texts?",
      options: (numbers) => sinkOptions(numbers).map((share) => `About ${percent(share)}`),
      why: ({ share, lengths, heads, heads_of_half, texts }) => (
        <>
          <p>
            Over all rows, heads and texts it gets {percent(share)}; the row above is one of them. A head’s weights must sum to 1, also where it finds nothing to read. One explanation is
            that it then looks at a token that does no harm: an attention sink (Xiao et al. 2023). The rows of numbers that the first token hands over, its values, are short here:{" "}
            {fixed(Math.min(...lengths), 2)} to {fixed(Math.max(...lengths), 2)} of the mean length of the others.
          </p>
          <p>
            Heads differ. {texts.length} texts times {heads / texts.length} heads are {heads} maps, and in {heads_of_half} of them the first token gets more than half.
          </p>
        </>
      ),
      hand: ({ weights, lengths }) => {
        const [first, length] = [rounded(weights[0]!, 2), rounded(lengths[2]!, 2)];
        const carried = rounded(first * length, 2);
        return (
          <p>
            Add up the row: {added(weights, 2)}. It is 1, but for rounding. Now count what is carried. The first token: {fixed(first, 2)} × {fixed(length, 2)} = {fixed(carried, 2)}. The
            others together, whose length is 1 in the mean: {fixed(1 - first, 2)} × 1 = {fixed(1 - first, 2)}. So the first token carries {fixed(carried, 2)} /{" "}
            {fixed(carried + 1 - first, 2)} = {percent(carried / (carried + 1 - first))} and not {percent(first)}.
          </p>
        );
      },
      further: () => (
        <p>In the menu “by” choose “norm” for “weight”: it counts what is carried. What is left of the first column in this head? Then try head 18.6. Why does nothing change there?</p>
      ),
    },
    tired: {
      title: "Tired and wide",
      teaser: "A head seems to know what “it” means. Try to prove it wrong.",
      setting: ({ head, sentences: [first] }) => (
        <p>
          In “{first!.text}” the word “it” is the animal. In head {head} of MiniLM “it” gives “animal” {percent(given(first!, "animal"))} of its attention. It looks as if the head had
          understood. Now we put “wide” for “tired”, and “it” is the street. [CLS] and [SEP] are marks that the model puts around a text.
        </p>
      ),
      question: () => "What does “it” give most to now?",
      options: (numbers) => tiredOptions(numbers),
      why: ({ head, sentences: [first, second, third], cosine }) => (
        <>
          <p>
            The word “wide” moved some: “animal” went from {percent(given(first!, "animal"))} to {percent(given(second!, "animal"))}, “street” from {percent(given(first!, "street"))} to{" "}
            {percent(given(second!, "street"))}. It was not enough: “animal” still gets more than “street”. Most went to [CLS], where many heads look when they find nothing.
          </p>
          <p>
            Head {head} prefers the noun that stands first. Turn the sentence round, and “it” gives “street” {percent(given(third!, "street"))}, though it is the animal there. We counted
            over {counted.sentences} such sentences, in pairs with opposite answers. A head that always takes the first noun is right in half of them, and this one is right in{" "}
            {counted.right}. The best of all 72 heads is right in {counted.best}; if all of them guessed, the best would be right in some {counted.guessed}.
          </p>
          <p>
            Does the head matter at all? Without it the vector that MiniLM makes of the first sentence has a cosine of {fixed(cosine, 4)} to what it was, where 1 is the same direction.
          </p>
        </>
      ),
      hand: ({ sentences }) => (
        <p>
          For each of the four sentences compare what “animal” and “street” get, and mark whether the larger is what “it” means:{" "}
          {sentences.map((each) => `${fixed(given(each, "animal"), 2)} and ${fixed(given(each, "street"), 2)}`).join("; ")}. How many marks do you have of four?
        </p>
      ),
      further: () => (
        <p>
          Click the sentence on top, and write one of your own with “it” and two nouns. Guess first, then look. Press “Take it out”: the similarity that is shown is the cosine of above. Can
          you find a head that is right in all of your sentences?
        </p>
      ),
    },
    mask: {
      title: "What a causal mask does",
      teaser: "Words are hidden. What happens to the weights of the others?",
      setting: ({ text, tokens, query, weights }) => (
        <p>
          The lesson computes attention for “{text}” with random numbers in its matrices. The word “{tokens[query]}” gives “{tokens[1]}” {fixed(weights[1]!)}. A causal mask hides all words
          after “{tokens[query]}”, as in a model that writes from left to right.
        </p>
      ),
      question: ({ tokens, query }) => <>What happens to what “{tokens[query]}” gives to the words that it still sees?</>,
      options: ({ query }) => ["Nothing changes", "All grow by the same factor", `Each becomes 1/${query + 1}`, "They change in no simple way"],
      why: () => (
        <p>
          Softmax divides e<sup>score</sup> of each word by the sum of all of these. The mask takes the hidden words out of that sum, and leaves the other scores as they are. So each e
          <sup>score</sup> stays, and is divided by a smaller sum: all grow by the same factor.
        </p>
      ),
      hand: ({ weights, causal, query, tokens }) => {
        const seen = weights.slice(0, query + 1);
        const all = sum(seen.map((weight) => rounded(weight, 4)));
        return (
          <p>
            Add up what the seen words had: {added(seen, 4)}. The factor is 1 / {fixed(all, 4)} = {fixed(1 / all, 3)}. Multiply: {fixed(seen[1]!, 4)} × {fixed(1 / all, 3)} ={" "}
            {fixed(rounded(seen[1]!, 4) * rounded(1 / all, 3))}. With the mask “{tokens[1]}” gets {fixed(causal[1]!)}. Try the other two.
          </p>
        );
      },
      further: () => <p>Switch “causal” on and off, and watch the rows of the picture. Which row does not change at all?</p>,
    },
    "two-heads": {
      title: "What a second head is for",
      teaser: "One row of weights sums to 1. What does a second one buy?",
      setting: ({ text, heads: [one, two] }) => (
        <p>
          In “{text}” the word “it” gives “{one!.word}” {fixed(one!.weights[one!.key]!)} in head {one!.head} of MiniLM. Suppose that “it” also needs the word “{two!.word}”.
        </p>
      ),
      question: ({ heads: [one] }) => <>How much has head {one!.head} left in this row, for all other words together?</>,
      options: () => twoHeadsOptions.map((share) => fixed(share)),
      why: ({ heads: [one, two], head_size }) => (
        <p>
          The weights of a row sum to 1, and head {one!.head} has given nearly all. Head {two!.head} has a row of its own for “it”, with queries and keys of its own: it gives “{two!.word}”{" "}
          {fixed(two!.weights[two!.key]!)}. What both heads take goes on side by side, {head_size} numbers from each. A single head could only mix the two words.
        </p>
      ),
      hand: ({ heads: [one, two] }) => (
        <p>
          Rounded to three digits, 1 − {fixed(one!.weights[one!.key]!)} = {fixed(1 - one!.weights[one!.key]!)} is left in head {one!.head}. Together the two heads give{" "}
          {fixed(one!.weights[one!.key]!)} + {fixed(two!.weights[two!.key]!)} = {fixed(rounded(one!.weights[one!.key]!) + rounded(two!.weights[two!.key]!))}: more than one row can. A single
          head that wanted both words equally could give each 0.500 at most.
        </p>
      ),
      further: ({ heads: [one, two] }) => (
        <p>
          Head {one!.head} looked at the word before “it”, head {two!.head} at the word after. Click the sentence on top, type another, and choose both heads among the squares. Does it hold
          for other words?
        </p>
      ),
    },
    translation: {
      title: "What a translator reads",
      teaser: "Which English word is read when an Italian one is written?",
      setting: ({ source, written, query }) => (
        <p>
          A small translator, trained with attend, reads “{source}” and writes Italian, token by token. It has just written “{shown(written[query]!)}”. In cross-attention its query comes
          from the Italian, and the keys and values come from the English. We look at head 3 of the decoder’s first cross-attention.
        </p>
      ),
      question: ({ next }) => <>It writes “{shown(next)}” next. Which English token does the head give most to?</>,
      options: ({ tokens }) => tokens.map(shown),
      why: ({ next, tokens, weights }) => (
        <p>
          Nobody told the model which words belong together. It learned from pairs of sentences that “{shown(next)}” goes with “
          {shown(tokens[weights.indexOf(Math.max(...weights))]!)}”. The row of a token is where the next one is written. Italian puts the adjective behind the noun, so two rows cross. This
          is one sentence: the example “translate” of attend’s repository records others.
        </p>
      ),
      hand: ({ weights, written, tokens }) => (
        <p>
          Add up the row: {added(weights, 2)}. Then count. The map has a row for {shown(written[0]!)} and for each of the {written.length - 1} Italian tokens, and a column for each of the{" "}
          {tokens.length - 1} English tokens and for {shown(tokens.at(-1)!)}. Here both happen to be {tokens.length}.
        </p>
      ),
      further: ({ written }) => (
        <p>
          Choose the rows of “{shown(written[3]!)}” and “{shown(written[4]!)}”: their strongest squares stand in reversed order. Under “Cross-attention” row 0 has four squares. What do the
          other three heads do?
        </p>
      ),
    },
    root: {
      title: "Why divide by √d",
      teaser: "Longer queries make larger scores. What does softmax do with them?",
      setting: ({ sizes, seeds }) => (
        <p>
          A score is a sum of d products, one for each number of a query. In the lesson’s sentence d is {sizes[0]!.size}, and the matrices hold random numbers. We average the largest weight
          over the rows, for {seeds} random draws, and take the middle of the {seeds} results. Without a division it is {fixed(sizes[0]!.without, 2)}. Now we make queries longer: d is{" "}
          {sizes.at(-1)!.size}.
        </p>
      ),
      question: () => "What becomes of the largest weight, still without a division?",
      options: ({ sizes: [short] }) => [
        "It falls, as the attention spreads", `It stays near ${fixed(short!.without, 2)}`, `It grows above ${fixed(1.3 * short!.without, 2)}`, "It becomes 1.00",
      ],
      why: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            The more products, the farther apart the scores: their standard deviation is {fixed(short.spread, 2)} for {short.size} numbers, {fixed(long.spread, 2)} for {long.size}. Softmax
            of scores that lie far apart gives most to one key: {fixed(long.without, 2)} here. Divided by √d the scores keep their distance, and the largest weight stays:{" "}
            {fixed(short.with, 2)} and {fixed(long.with, 2)}. This holds where the products are independent and 0 in the mean, as the lesson’s are.
          </p>
        );
      },
      hand: ({ sizes }) => {
        const [short, long] = [sizes[0]!, sizes.at(-1)!];
        return (
          <p>
            √({long.size} / {short.size}) = {fixed(Math.sqrt(long.size / short.size), 2)}. The standard deviations have the ratio {fixed(long.spread, 2)} / {fixed(short.spread, 2)} ={" "}
            {divided(long.spread, short.spread, 2)}, which is near it. Divided: {fixed(short.spread, 2)} / √{short.size} = {fixed(rounded(short.spread, 2) / Math.sqrt(short.size), 2)}, and{" "}
            {fixed(long.spread, 2)} / √{long.size} = {fixed(rounded(long.spread, 2) / Math.sqrt(long.size), 2)}.
          </p>
        );
      },
      further: () => <p>Switch “scale” on and off, and watch “as if over … keys” at the right: it counts the keys that a row amounts to. Then open “more”, and change d_k.</p>,
    },
  },
};
