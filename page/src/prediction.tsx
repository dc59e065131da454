// Predict, then reveal: a question with its options, of which one is right. What follows the answer is its children.
import type { ComponentChildren } from "preact";

export interface PredictionWords {
  title: string;
  yes: string;
  no: (right: string) => string;
  again: string;
}

export function Prediction({ question, options, right, chosen, choose, words, children }: {
  question: ComponentChildren;
  options: string[];
  right: number;
  chosen: number | null;
  choose: (place: number | null) => void;
  words: PredictionWords;
  children?: ComponentChildren;
}) {
  const answered = chosen !== null;
  return (
    <section class="exercise" aria-label={words.title}>
      <h3>{words.title}</h3>
      <p>{question}</p>
      <div class="options">
        {options.map((option, place) => (
          <button
            type="button" key={place} disabled={answered} onClick={() => choose(place)}
            class={answered && place === right ? "right" : answered && place === chosen ? "wrong" : undefined}
          >
            <bdi>{option}</bdi>
          </button>
        ))}
      </div>
      <div role="status">
        {answered && <p><b>{chosen === right ? words.yes : words.no(options[right]!)}</b> {children}</p>}
      </div>
      {answered && <button type="button" class="quiet" onClick={() => choose(null)}>{words.again}</button>}
    </section>
  );
}
