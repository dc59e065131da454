// The opening: why there is attention, with a head of a real model, in words for whoever never heard of it; and how far
// the head's look may be trusted.
import { counted } from "./counted";
import { Looked } from "./looked";
import { sayLesson } from "./words/lesson";

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

const percent = (share: number): string => `${Math.round(share * 100)} %`;

function Look({ text, meant, weights }: (typeof looks)[number]) {
  const tokens = ["[CLS]", ...text.split(" "), "[SEP]"];
  const given = (word: string): number => weights[tokens.indexOf(word)];
  const [first, second] = ["animal", "street"].sort((one, other) => given(other) - given(one));
  return (
    <figure class="look">
      <Looked tokens={tokens} weights={weights} query={tokens.indexOf("it")} label={sayLesson.why.looksAt} percent={percent} />
      <figcaption>
        {sayLesson.why.caption("it", meant, [first, percent(given(first))], [second, percent(given(second))], first === meant)}
      </figcaption>
    </figure>
  );
}

export function Why({ onClose, onSteps }: { onClose: () => void; onSteps: () => void }) {
  const [shown, ...others] = looks;
  return (
    <section class="why" aria-labelledby="why">
      <header>
        <h2 id="why">{sayLesson.page.why}</h2>
        <button type="button" onClick={onClose}>{sayLesson.why.close}</button>
      </header>
      <p>{sayLesson.why.what}</p>
      <Look {...shown} />
      <p>{sayLesson.why.understanding}</p>
      {others.map((look) => <Look key={look.text} {...look} />)}
      <p>{sayLesson.why.counted(counted)}</p>
      <p>
        {sayLesson.why.from}{" "}
        <button type="button" onClick={onSteps}>{sayLesson.why.toSteps}</button>
      </p>
    </section>
  );
}
