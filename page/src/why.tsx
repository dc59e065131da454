// The opening: why there is attention, with a head of a real model, in words for whoever never heard of it; and how far
// the head's look may be trusted.
import { shareColour, shareInk } from "./colour";

// What head 3.1 of MiniLM gives in the row of "it", and to which noun `it` refers: `attend model minilm TEXT --head 3.1
// --query it --json`. page.test.mjs compares them.
const looks = [
  {
    text: "the animal did not cross the street because it was too tired", meant: "animal",
    weights: [0.1221, 0.0393, 0.6529, 0.0057, 0.0005, 0.012, 0.0032, 0.0561, 0.0024, 0.0611, 0.0047, 0.0013, 0.0149, 0.0238],
  },
  {
    text: "the animal did not cross the street because it was too wide", meant: "street",
    weights: [0.3199, 0.0239, 0.2999, 0.0118, 0.0016, 0.0792, 0.0089, 0.155, 0.0044, 0.0252, 0.0084, 0.0009, 0.0363, 0.0246],
  },
  {
    text: "the street was not crossed by the animal because it was too tired", meant: "animal",
    weights: [0.1213, 0.0169, 0.6315, 0.0039, 0.0003, 0.0086, 0.0012, 0.0064, 0.1265, 0.0029, 0.0423, 0.0048, 0.0017, 0.0151, 0.0166],
  },
  {
    text: "the street was not crossed by the animal because it was too wide", meant: "street",
    weights: [0.1802, 0.0186, 0.6529, 0.0042, 0.0007, 0.0306, 0.0006, 0.0048, 0.0535, 0.0029, 0.0107, 0.0055, 0.0007, 0.0212, 0.0131],
  },
];
// Of 40 such sentences (tests/tasks/referents.tsv), and what the sentence's vector loses without the head.
const counted = { sentences: 40, right: 20, best: 25, guessed: 27, cosine: 0.9983 };

const percent = (share: number): string => `${Math.round(share * 100)} %`;

function Look({ text, meant, weights }: (typeof looks)[number]) {
  const tokens = ["[CLS]", ...text.split(" "), "[SEP]"];
  const given = (word: string): number => weights[tokens.indexOf(word)];
  const [first, second] = ["animal", "street"].sort((one, other) => given(other) - given(one));
  return (
    <figure class="look">
      <ol class="looked" aria-label="What it looks at">
        {tokens.map((token, place) => (
          <li key={place} class={token === "it" ? "it" : undefined} data-weight={weights[place]}>
            <span style={{ background: shareColour(weights[place], "sqrt"), color: shareInk(weights[place], "sqrt") }}>{token}</span>
            <small>{percent(weights[place])}</small>
          </li>
        ))}
      </ol>
      <figcaption>
        <b>it</b> is the {meant}. The head gives {percent(given(first))} to {first}, {percent(given(second))} to {second}:{" "}
        {first === meant ? "right." : "wrong."}
      </figcaption>
    </figure>
  );
}

export function Why({ onClose }: { onClose: () => void }) {
  const [shown, ...others] = looks;
  return (
    <section class="why" aria-labelledby="why">
      <header>
        <h2 id="why">Why attention?</h2>
        <button type="button" onClick={onClose}>Skip</button>
      </header>
      <p>
        What was too tired in the sentence below? You know at once that <b>it</b> is the animal. To a computer each word is a row of
        numbers, and the row of <b>it</b> says nothing of an animal. With <b>attention</b> a word looks at all the others and takes
        from each a share of what that one holds. These are the shares of <b>it</b> in head 3.1, one of the 72 heads of MiniLM, a model
        that learned from text. [CLS] and [SEP] are marks that the model puts around a text.
      </p>
      <Look {...shown} />
      <p>
        <b>Is this understanding?</b> Put “wide” for “tired”, and <b>it</b> is the street. Turn the sentence round, and the nouns change
        places. Guess what the head gives most to, then look:
      </p>
      {others.map((look) => <Look key={look.text} {...look} />)}
      <p>
        It is none. Over {counted.sentences} such sentences head 3.1 is right in {counted.right}, as a coin would be. The best of the 72 heads is
        right in {counted.best}; if all of them guessed, the best would be right in some {counted.guessed}. And without head 3.1 the vector that MiniLM makes of the
        first sentence hardly turns: its cosine to what it was is {counted.cosine}. A head’s weights say where it looks. What that does, other
        sentences and taking the head out must show.
      </p>
      <p>
        Where do such shares come from? The steps show it for any sentence that you type, number by number.{" "}
        <button type="button" onClick={onClose}>To the steps</button>
      </p>
    </section>
  );
}
