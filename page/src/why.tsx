// The opening: why there is attention, with a head of a real model, in words for whoever never heard of it.
import { shareColour, shareInk } from "./colour";

// What `attend model minilm "the animal did not cross the street because it was too tired" --head 3.1 --query 9 --json` prints:
// its tokens, and of the weights of "it" the eight largest, by the token's place; and of the sentence turned round the largest.
// page.test.mjs compares them.
export const it = {
  text: "the animal did not cross the street because it was too tired",
  head: "3.1",
  query: 9,
  tokens: ["[CLS]", "the", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "too", "tired", "[SEP]"],
  weights: { 2: 0.6529, 0: 0.1221, 9: 0.0611, 7: 0.0561, 1: 0.0393, 13: 0.0238, 12: 0.0149, 5: 0.012 } as Record<number, number>,
  turned: { text: "the street was not crossed by the animal because it was too tired", token: "street", weight: 0.6315 },
};
const rest = 1 - Object.values(it.weights).reduce((sum, weight) => sum + weight, 0);
const percent = (share: number): string => `${Math.round(share * 100)} %`;

export function Why({ onClose }: { onClose: () => void }) {
  const withoutNumber = it.tokens.length - Object.keys(it.weights).length;
  return (
    <section class="why" aria-labelledby="why">
      <header>
        <h2 id="why">Why attention?</h2>
        <button type="button" onClick={onClose}>Skip</button>
      </header>
      <p>
        What was too tired in the sentence below? You know at once that <b>it</b> is the animal. To a computer each word is a row of
        numbers, and the row of <b>it</b> says nothing of an animal. With <b>attention</b> a word looks at all the others and takes
        from each a share of what that one holds. These are the shares of <b>it</b> in one of the 72 heads of MiniLM, a model that
        learned from text:
      </p>
      <ol class="looked" aria-label="What it looks at">
        {it.tokens.map((token, place) => {
          const weight = it.weights[place];
          return (
            <li key={place} class={place === it.query ? "it" : undefined} data-weight={weight}>
              <span style={weight === undefined ? undefined : { background: shareColour(weight, "sqrt"), color: shareInk(weight, "sqrt") }}>{token}</span>
              <small>{weight === undefined ? "" : percent(weight)}</small>
            </li>
          );
        })}
      </ol>
      <p class="quiet">
        This is head {it.head}. The head does not know what <b>it</b> means: in “{it.turned.text}” the head gives most to “{it.turned.token}”, {percent(it.turned.weight)}. The
        head follows the noun that comes first. [CLS] and [SEP] are marks that the model puts around a text. The {withoutNumber} words
        without a number share the other {percent(rest)}.
      </p>
      <p>
        Where do such shares come from? The steps show it for any sentence that you type, number by number.{" "}
        <button type="button" onClick={onClose}>To the steps</button>
      </p>
    </section>
  );
}
