// Predict, then reveal: a question about the numbers on the page, whose answer is read from them.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { say } from "./words";

export function Exercise({ question, options, right, children }: {
  question: ComponentChildren;
  options: string[];
  right: number;
  children: ComponentChildren; // why, once it is answered
}) {
  const [chosen, setChosen] = useState<number | null>(null);
  const answered = chosen !== null;
  return (
    <section class="exercise" aria-label={say.exercise.title}>
      <h3>{say.exercise.title}</h3>
      <p>{question}</p>
      <div class="options">
        {options.map((option, place) => (
          <button
            type="button" key={place} disabled={answered} onClick={() => setChosen(place)}
            class={answered && place === right ? "right" : answered && place === chosen ? "wrong" : undefined}
          >
            <bdi>{option}</bdi>
          </button>
        ))}
      </div>
      <div role="status">
        {answered && <p><b>{chosen === right ? say.exercise.yes : say.exercise.no(options[right]!)}</b> {children}</p>}
      </div>
      {answered && <button type="button" class="quiet" onClick={() => setChosen(null)}>{say.exercise.again}</button>}
    </section>
  );
}
