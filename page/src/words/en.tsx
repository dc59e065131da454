// The lesson's words in English. The other languages have this one's type: where one lacks a text, nothing compiles. Numbers
// come in as they are shown; names of tensors and of the command's options stay what they are.
import { Word, termOf } from "../term";

const glossary = {
  embedding: { name: "embedding", meaning: "A row of numbers that stands for a word. Here it is drawn at random; training would learn it." },
  query: { name: "query", meaning: "What a word looks for: its embedding times w_query." },
  key: { name: "key", meaning: "What a word offers to be found by: its embedding times w_key." },
  value: { name: "value", meaning: "What a word hands over when it is attended to: its embedding times w_value." },
  "dot product": { name: "dot product", meaning: "Two rows multiplied number by number and added up. It is large where they point the same way." },
  score: { name: "score", meaning: "The dot product of a query with a key: how well they match." },
  softmax: { name: "softmax", meaning: "Turns any numbers into positive ones that sum to 1: exp of each, divided by the sum of all." },
  logit: { name: "logit", meaning: "What the softmax sees: the scaled score, or -inf for a key that is hidden." },
  weight: { name: "weight", meaning: "The share of its attention that a query gives to a key. A query's weights sum to 1." },
  entropy: {
    name: "entropy",
    meaning: "How spread out a query's weights are, -Σ w ln w, in nats. 0: all on one key. ln n: n keys alike. exp(entropy) counts the keys that it amounts to.",
  },
  "context vector": { name: "context vector", meaning: "What attention gives for a word: the values of all words, each in its share." },
  head: { name: "head", meaning: "One attention with matrices of its own. Several look at the same words side by side, each for something else." },
  sink: { name: "sink", meaning: "A head whose queries mostly look at one key that holds next to nothing, such as the first token: it does nothing then." },
  besides: { name: "besides", meaning: "What a head does where it does not look at its sink: told of the rest of its weights." },
  previous: { name: "previous", meaning: "A head that looks at the token before." },
  duplicate: { name: "duplicate", meaning: "A head that looks at where the same token stood before." },
  induction: { name: "induction", meaning: "A head that looks at what came after the same token before: so it can repeat what was read." },
  local: { name: "local", meaning: "A head that looks at the few tokens around." },
  broad: { name: "broad", meaning: "A head that spreads its weights over many keys; a focused one gives nearly all to a few." },
  lift: { name: "lift", meaning: "What a token receives, beside what it would if every row were spread evenly over what it sees: above 1 it is looked at more often." },
  norm: { name: "norm", meaning: "A weight times the size of what the key carries, beside what a row of the head takes in the mean (Kobayashi et al. 2020)." },
  "residual stream": { name: "residual stream", meaning: "A word's row on its way through a Transformer: each attention and each MLP adds to it, and nothing is replaced." },
  MLP: { name: "MLP", meaning: "Matrices with a bend between them, which each word's row goes through by itself: it looks at no other word." },
  "layer norm": { name: "norm of a row", meaning: "A row brought to a usual size before it is read: LayerNorm or RMSNorm. It is not the norm of a weight." },
  causal: { name: "causal", meaning: "A word sees itself and the words before it, as in a model that writes from left to right." },
  "cross-attention": { name: "cross-attention", meaning: "The queries come from one sentence, the keys and values from another: how a translator reads what it translates." },
};
export type GlossaryWord = keyof typeof glossary;
const Term = termOf(glossary);

export const en = {
  glossary,
  Term,
  glossaryTitle: "What the words mean",
  head: (head: number) => `head ${head}`,
  hidden: "hidden",
  sum: "sum",
  query: "query",
  key: "key",
  value: "value",
  weight: "weight",
  weights: "weights",
  entropy: "entropy",
  nats: "nats",
  tooLong: (words: number, most: number) =>
    `${words} words are more than a page shows well, which is up to ${most}. For long texts: attend explain TEXT -o FILE.attend, ` +
    "then attend show FILE.attend; or attend explain TEXT -o FILE.png.",
  number: (place: number) => `number ${place}`,
  moreKeys: (count: number) => `and ${count} keys with smaller weights`,
  entropyOf: (word: string, nats: string, keys: string) => <><Term of="entropy" /> of <Word>{word}</Word>: {nats} nats, as if over {keys} keys.</>,

  // The switches, and what differs from what was kept to compare with.
  options: {
    text: "sentence", second_text: "second sentence", seed: "seed", embedding_size: "embedding size", d_k: "d_k", d_v: "d_v", heads: "heads", weights: "weights", causal: "causal",
    positions: "positions", scale: "scale", window: "window",
  },
  difference: { on: "on", off: "off", none: "none", nothing: "nothing was changed yet" },

  matrix: {
    label: (name: string, rows: number, cols: number) => `${name}, ${rows} rows, ${cols} columns`,
    painted: (label: string) => `${label}: arrow keys choose the number that is worked out`,
    copyAs: (name: string) => `Copy ${name} as`,
    copy: "copy",
    copied: (form: string) => `copied as ${form}`,
    closed: "this browser keeps its clipboard closed",
    digits: "digits",
  },
  legend: {
    scales: { linear: "linear", sqrt: "square root", log: "logarithm" },
    scale: "Scale of the weights' colours",
    range: "Range of the weights' colours",
    upTo: (top: number) => `from 0 to ${top}`,
    largest: (weight: string) => `in every head; the largest weight here is ${weight}`,
    below: "below 0",
    above: "above 0",
  },
  exercise: {
    title: "Predict",
    yes: "Yes.",
    no: (right: string) => `It is "${right}".`,
    again: "again",
  },
  products: { number: "number", product: "product", smaller: (count: number) => `${count} smaller ones` },
  hiddenKeys: (count: number, all: number) => `${count} of ${all} keys are hidden from it`,

  picture: {
    name: "Picture",
    title: "Who attends to whom",
    text: (cross: boolean) => (
      <p>
        Each row is a <Term of="query" />: how a word shares its attention among the <Term of="key">keys</Term>, the columns. A row's{" "}
        <Term of="weight">weights</Term> sum to 1.{cross && " The rows are the first sequence's, the columns the second's."} Touch any
        number; the steps show where it comes from.
      </p>
    ),
    looksAt: (word: string, head: number | null) => <><Word>{word}</Word> looks at{head !== null && `, in head ${head}`}</>,
    words: "Words",
    trained: (
      <>
        These weights are those of a trained model: head 3.1 of MiniLM. Any sentence is shown so by the explorer's Step by step:{" "}
        <code>attend model minilm "…" --live -o minilm.html</code>
      </>
    ),
    random: "These weights are made of random numbers: nothing was trained. They show how attention is computed, not what a model has learned.",
    given: "These weights are made of the document's own numbers: its embeddings are written down there, its matrices drawn at random. Nothing was trained.",
    drawn: "These weights are made of the document's own numbers, which it draws at random: nothing was trained.",
    where: (word: string) => <>Where <Word>{word}</Word> looks</>,
    entropy: (nats: string, keys: string) => <><Term of="entropy" /> {nats} nats: as if over {keys} keys.</>,
    saveAs: (form: string) => `Save as ${form}`,
    noExplanation: "Weights say where a head reads from. They are not an explanation of what a model does by themselves.",
    question: "All heads read the same words. Why do they look elsewhere?",
    options: ["each has matrices of its own", "each reads other words", "each reads the one before it"],
    answer: (heads: number) => (
      <>
        Each has its own w_query, w_key and w_value, so one word is {heads} different queries. Go through the heads' tabs: the words
        stay, the rows change.
      </>
    ),
    before: (difference: string) => `weights before (${difference})`,
    cross: (
      <p>
        A translator reads “le chat est assis” and writes “the cat sat”. Its queries are the words that it has written; its keys and values are the words that
        it has read. So each word that it writes can look at all that it reads: this is what <Term of="cross-attention" /> is for.
      </p>
    ),
    several: {
      title: "Why several heads?",
      rule: "A row of weights sums to 1. So one head can't give 0.9 to one word and 0.9 to another. Two heads can: each has a row of its own.",
      one: "Here there is one head. A second one could give as much again, to another word. MiniLM, the model of the opening, has 12 in each of its 6 layers.",
      alike: (word: string, key: string) => <>In the row of <Word>{word}</Word> all heads here give most to <Word>{key}</Word>. Another row may tell them apart.</>,
      apart: (word: string, [first, key, weight]: [number, string, string], [second, other, more]: [number, string, string], sum: string) => (
        <>
          Here head {first} gives {weight} of <Word>{word}</Word> to <Word>{key}</Word>. Head {second} gives {more} of it to <Word>{other}</Word>. Together this is {sum}.
        </>
      ),
      over: "One row could not: that is more than 1.",
    },
    entropyBefore: (word: string, before: string, now: string) => <><Term of="entropy" /> of <Word>{word}</Word>: {before} nats before, {now} now.</>,
  },

  scores: {
    name: "Scores",
    title: "Queries meet keys: scores",
    text: (
      <p>
        A <Term of="score" /> is the <Term of="dot product" /> of one query with one key: large where they point the same way. Touch one, and the
        query and the key that made it light up.
      </p>
    ),
    times: (query: string, key: string) => <>The query of <Word>{query}</Word> times the key of <Word>{key}</Word>, number by number:</>,
    question: (word: string) => <>After the softmax, which key gets most of the attention of <Word>{word}</Word>?</>,
    answer: (weight: string) => `It gets ${weight}. The softmax keeps the order of a row: its largest visible score is its largest weight.`,
  },
  scale: {
    name: "Scale",
    title: "Scores are scaled",
    off: (
      <p>
        Scaling is off: the scores go to the <Term of="softmax" /> as they are. The more numbers a query has, the farther apart its scores lie, and the
        softmax gives nearly all to one key. Switch it on, and watch the <Term of="entropy" />.
      </p>
    ),
    on: (kind: "linear" | "uniform" | "trained") => (
      <p>
        The more products, the larger their sum. Where the numbers are independent and 0 in the mean{{ linear: ", as those drawn here are", uniform: ", which those here are not", trained: ", which those of a trained head need not be" }[kind]}, it grows with
        the square root of their number. Divided by that, scores keep a size at which the <Term of="softmax" /> can share.{kind !== "trained" && <> Switch it off,
        and watch the <Term of="entropy" />.</>}
      </p>
    ),
    before: (difference: string, nats: string) => ` Before (${difference}): ${nats}.`,
    whyRoot: "Why the square root?",
    growth: (linear: string, uniform: string) => (
      <>
        Products of independent numbers with the mean 0 cancel in part: from 24 to 384 numbers their sum spreads {linear} times as far, and √16 is 4.
        The documents draw uniform weights, all above 0. Nothing cancels there: the scores spread {uniform} times as far, nearly 16, and √d_k divides too little.
      </>
    ),
    spread: (sizes: string, linear: string, uniform: string) => `Spread of the scores at ${sizes} numbers: mean 0: ${linear}; uniform: ${uniform}`,
    uniform: "uniform",
    mean0: "mean 0",
    question: (size: number, word: string) => <>Without the division by √{size}, would <Word>{word}</Word> share its attention among more words, or fewer?</>,
    options: ["more", "fewer", "as many"],
    answer: (unscaled: string, divided: string) => (
      <>
        Unscaled, its entropy is {unscaled} nats; divided, {divided}. Larger scores lie farther
        apart, and exp turns distances into ratios.
      </>
    ),
  },
  mask: {
    name: "Mask",
    title: "Some keys are hidden",
    text: (causal: boolean, window: number | null) => (
      <p>
        {causal && <><Term of="causal">Causal</Term>: a word sees itself and the words before it. </>}
        {window !== null && `A window of ${window}: a word sees at most that many words to ${causal ? "its left" : "either side"}. `}
        The score of a key that a query does not see becomes -inf, and exp(-inf) is 0: the <Term of="softmax" /> gives it nothing.
      </p>
    ),
    formula: "logits = scaled_scores where the query sees the key, else -inf",
    sees: ({ query, i, key, j, hidden, seen, keys }: { query: string; i: number; key: string; j: number; hidden: boolean; seen: number; keys: number }) => (
      <>
        <Word>{query}</Word>, place {i}, {hidden ? "does not see" : "sees"} <Word>{key}</Word>, place {j}.
        It sees {seen} of {keys} keys.
      </>
    ),
    question: (word: string, place: number, words: number) => <>How many keys does <Word>{word}</Word>, word {place} of {words}, see?</>,
    answer: (seen: number) => `Its row of the mask has ${seen} numbers that are not -inf. A word always sees itself.`,
  },
  softmax: {
    name: "Softmax",
    title: "Softmax turns scores into weights",
    text: (
      <p>
        <Term of="softmax">Softmax</Term>: each row becomes positive numbers that sum to 1. The row's largest is taken off first, which changes
        nothing but keeps exp from overflowing. The <Term of="entropy" /> says how spread out a row is.
      </p>
    ),
    why: {
      title: "Why exp?",
      example: (word: string, [key, logit]: [string, string], [other, less]: [string, string], difference: string) => (
        <>
          In the row of <Word>{word}</Word>, <Word>{key}</Word> has {logit} and <Word>{other}</Word> has {less}. The difference is {difference}.
        </>
      ),
      ratio: (difference: string, power: string, weight: string, other: string, ratio: string) => (
        <>
          exp({difference}) = <output>{power}</output>. The weights are {weight} and {other}. Their ratio is <output>{ratio}</output>: the same.
        </>
      ),
      vanished: (difference: string, power: string) => <>exp({difference}) = <output>{power}</output>. The second weight is that many times smaller: too small for an f32.</>,
      lone: (word: string) => <><Word>{word}</Word> sees one key, which gets all.</>,
      rule: "exp makes every number positive. It keeps their order. It turns a difference of scores into a ratio of weights: a key whose score is higher by 1 gets 2.718 times the weight of the other, whatever the other keys have. Both are divided by the same sum.",
    },
    weightIs: (sum: string) => `weight = e / ${sum}`,
    logit: "logit",
    scaledScore: "scaled score",
    asIfOver: "as if over",
    keys: (count: string) => `${count} keys`,
  },
  context: {
    name: "Context",
    title: "Weights mix the values: context vectors",
    text: (
      <p>
        Each word's <Term of="context vector" /> is the average of the <Term of="value">values</Term> that it sees, each in its share. This is what attention
        hands on.
      </p>
    ),
    block: {
      title: "Where this stands in a Transformer",
      first: (
        <>
          Example: in a block of GPT-2 or Llama a word's row x is read by attention first, then by an <Term of="MLP" />. What each gives is added to x. This row that all
          add to is the <Term of="residual stream" />. Each reads it after a <Term of="layer norm">norm</Term>.
        </>
      ),
      second: "The original Transformer (Vaswani et al. 2017) and BERT, of whose kind MiniLM is, take the norm after each sum: norm(x + attention(x)). Such blocks stand on each other: 12 in the small GPT-2. These steps show the attention alone.",
      norm: "norm",
      attention: "attention",
      drawing: "x goes on, and is read twice: norm, attention, plus x; then norm, MLP, plus x",
    },
    share: (place: number, word: string) => <>Number {place} of each value, in the share that <Word>{word}</Word> gives to its word:</>,
  },
  heads: {
    name: "Heads",
    title: "The heads are joined",
    text: (heads: number) => (
      <p>
        The context vectors of the {heads} <Term of="head">heads</Term> stand side by side: each word has one long row, in which every head
        has its part.
      </p>
    ),
    formula: "concat_heads = [context of head 0, context of head 1, …]",
    part: ({ place, head, heads, size }: Record<"place" | "head" | "heads" | "size", number>) =>
      `It is number ${place} of the context vector of head ${head}, as ${heads} heads of ${size} numbers make ${heads * size}.`,
    goTo: (head: number) => `Go to head ${head}`,
  },
  output: {
    name: "Output",
    title: "One more matrix mixes the heads",
    text: "w_output brings the joined heads back to the size of an embedding, and lets what one head found meet what another found.",
    joined: "joined",
  },
};

// What the lesson alone says.
export const enLesson = {
  page: {
    title: (text: string) => `${text} - attention, step by step`,
    subtitle: "attention, step by step",
    skip: "Skip to the step",
    why: "Why attention?",
    copyLink: "Copy link",
    language: "Language",
    document: (numbers: string) => `Document ${numbers}.`,
    heads: "Heads",
    steps: "Steps",
    previous: "Previous step",
    next: "Next step",
    fold: "Fold",
    workedOut: "Worked out",
    inFull: "open it in full",
    footer: (trained: boolean) =>
      `Space and arrows: next and previous step. A number: hover to look, click to keep, Esc to let go. ${trained ? "Every number was computed by attend's own code" : "Every number is computed here, by attend's own code"}; nothing leaves this page.`,
    cannotRun: (error: string) => `This browser can't run the page that computes (${error}); what follows is the same, without switches.`,
  },
  why: {
    looksAt: "What it looks at",
    caption: (it: string, meant: string, [first, much]: [string, string], [second, less]: [string, string], right: boolean) => (
      <>
        <b>{it}</b> is the {meant}. The head gives {much} to {first}, {less} to {second}:{" "}
        {right ? "right." : "wrong."}
      </>
    ),
    close: "Skip",
    what: (
      <>
        What was too tired in the sentence below? You know at once that <b>it</b> is the animal. To a computer each word is a row of
        numbers, and the row of <b>it</b> says nothing of an animal. With <b>attention</b> a word looks at all the others and takes
        from each a share of what that one holds. These are the shares of <b>it</b> in head 3.1, one of the 72 heads of MiniLM, a model
        that learned from text. [CLS] and [SEP] are marks that the model puts around a text.
      </>
    ),
    understanding: (
      <>
        <b>Is this understanding?</b> Put “wide” for “tired”, and <b>it</b> is the street. Turn the sentence round, and the nouns change
        places. Guess what the head gives most to, then look:
      </>
    ),
    counted: ({ sentences, right, best, guessed, cosine }: Record<"sentences" | "right" | "best" | "guessed" | "cosine", number>) => (
      <>
        It is none. Over {sentences} such sentences head 3.1 is right in {right}: in half, as they come in pairs with opposite answers and it prefers the first noun. The best of the 72 heads is
        right in {best}; if all of them guessed, the best would be right in some {guessed}. And without head 3.1 the vector that MiniLM makes of the
        first sentence hardly turns: its cosine to what it was is {cosine}. A head’s weights say where it looks. What that does, other
        sentences and taking the head out must show.
      </>
    ),
    from: "Where do such shares come from? The steps show it number by number: first with this head's own numbers, then for any sentence that you type, with random ones.",
    toSteps: "To the steps",
  },
  controls: {
    section: "Sentence and switches",
    sentence: "The sentence",
    second: "keys and values from",
    example: "An example of the documents",
    own: "your sentence",
    model: "These are head 3.1's own numbers, of the trained model MiniLM; a sentence of yours is computed with random weights.",
    back: "Back to the page's sentence",
    opening: "MiniLM, head 3.1: the sentence of the opening",
    preset: (name: string, summary: string, document: string) => `${name}: ${summary} (document ${document})`,
    all: "all",
    more: "more",
    linear: "as nn.Linear, around 0",
    uniform: "uniform, 0 to 1",
    keep: "Keep these weights, to see the next change beside them",
    compare: "Compare",
    stop: "Stop comparing",
    spaceless: "This sentence has no spaces: words are split at them; put spaces between words.",
    putSpaces: "Put spaces between words",
  },
  // What each preset is there to show: docs/lessons.md has it at length.
  lessons: {
    journey:
      "The smallest case you can check by hand: six words with three given numbers each, queries, keys and values of two. Follow one pair with a pencil: journey's query times its own key is 1.8524, the largest of its row. The rows are even, as numbers between 0 and 1 give scores that hardly differ.",
    "journey-linear":
      "The same sentence through nn.Linear layers, as real models have them: the matrices stand the other way round, and are drawn around 0. The scores shrink, and the weights become nearly equal.",
    life:
      "A real size: 16 numbers a word, queries and keys of 24, values of 28. \"is\" meets the key of \"dessert\" best. Look at \"short\", \"eat\" and \"dessert\": they give everything to one word, since matrices between 0 and 1 make large scores, and softmax of large scores is all or nothing.",
    "life-multihead":
      "Three heads: three sets of matrices, three answers to who matters to whom. Head 0 of \"is\" looks at \"short\", head 1 at \"Life\" and \"first\", head 2 at itself. Within a head nothing is new.",
    "life-cross":
      "Cross-attention: the queries come from the sentence, the keys and values from a second sequence, here eight rows of random numbers. The weights are no longer square, and each row still sums to 1. This is how a decoder reads what an encoder wrote.",
    "life-continued":
      "The same code, but the generator is not seeded again between the embeddings and the matrices. The embeddings are the same to the last bit; every number after them differs. When a tutorial's numbers won't come out, look for a seed.",
    "life-continued-multihead": "Three heads, from a generator that is not seeded again: the same words, other numbers from the queries on.",
    "my-name": "Five words with ids that the document picks in a vocabulary of ten; queries, keys and values of 16.",
    "my-name-multihead":
      "The complete multi-head attention of a Transformer: four heads of 4 numbers, side by side as wide as the embeddings, and one more matrix that mixes them.",
  },
  words: {
    name: "Words",
    title: "Words become ids",
    given: (size: number) => `The document gives each word an id in a vocabulary of ${size}.`,
    made: "Commas are dropped and the words are split at white space. A word's id is its place among the sorted, distinct words, from 0; capitals come first.",
    second: "The second sentence has a vocabulary of its own.",
    numbers: (count: number) => `The second sequence is numbers, without words: x1 to x${count}.`,
    hasId: (word: string, id: number) => <><Word>{word}</Word> has the id {id}</>,
    same: (times: number) => `It stands there ${times} times, each time with the same id: nothing tells the places apart, unless positions are added.`,
    id: "id",
    word: "word",
  },
  embeddings: {
    name: "Embeddings",
    title: "Ids become embeddings",
    given: <p>The document gives the <Term of="embedding">embeddings</Term>: one row of numbers for each word.</p>,
    drawn: (seed: string) => (
      <p>
        Each id picks one row of a table of random numbers from N(0, 1), seed {seed}: the word's <Term of="embedding" />. Training would learn
        the table, so that words that mean alike have rows alike.
      </p>
    ),
    row: (word: string, id: number, size: number) => (
      <><Word>{word}</Word> has the id {id}: its embedding is row {id} of the table, counted from 0. Its {size} numbers are all that is known of the word from here on.</>
    ),
  },
  positions: {
    name: "Places",
    title: "Places are added to the embeddings",
    text: (
      <p>
        Attention does not know in which order words stand. So each place has a row of its own, sines and cosines of ever longer waves (Vaswani
        et al. 2017, section 3.5), and it is added. The place t of the first word is 0.
      </p>
    ),
    wave: (place: number, wave: string, over: string, value: string) => (
      <>
        Its place is {place}, and this wave's is {wave}({place} / 10000<sup>{over}</sup>) ={" "}
        {value}.
      </>
    ),
  },
  projections: {
    name: "q, k, v",
    title: "Embeddings become queries, keys and values",
    text: ({ cross, linear, several }: Record<"cross" | "linear" | "several", boolean>) => (
      <p>
        Three matrices turn each embedding into a <Term of="query" /> (what it looks for), a <Term of="key" /> (what it offers) and a{" "}
        <Term of="value" /> (what it hands over). {cross && "The queries come from the first sequence, the keys and values from the second. "}
        {linear ? "The matrices are drawn as torch.nn.Linear draws its own, around 0." : "The matrices are drawn between 0 and 1."}
        {several && " Each head has matrices of its own."}
      </p>
    ),
    times: (word: string, column: boolean, place: number, matrix: string) => (
      <>
        The embedding of <Word>{word}</Word> times {column ? "column" : "row"} {place} of {matrix}, added up:
      </>
    ),
  },
};
export type Words = typeof en;
export type Lesson = typeof enLesson;
