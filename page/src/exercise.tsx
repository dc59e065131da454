// Predict, then reveal: a question about the numbers on the page, whose answer is read from them.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export function Exercise({ question, options, right, children }: {
  question: ComponentChildren;
  options: string[];
  right: number;
  children: ComponentChildren; // why, once it is answered
}) {
  const [chosen, setChosen] = useState<number | null>(null);
  const answered = chosen !== null;
  return (
    <section class="exercise" aria-label="Predict">
      <h3>Predict</h3>
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
        {answered && <p><b>{chosen === right ? "Yes." : `It is "${options[right]}".`}</b> {children}</p>}
      </div>
      {answered && <button type="button" class="quiet" onClick={() => setChosen(null)}>again</button>}
    </section>
  );
}
