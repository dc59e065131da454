// A prediction about the numbers on the page, whose answer is read from them.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Prediction } from "./prediction";
import { say } from "./words";

export function Exercise({ question, options, right, children }: {
  question: ComponentChildren;
  options: string[];
  right: number;
  children: ComponentChildren; // why, once it is answered
}) {
  const [chosen, choose] = useState<number | null>(null);
  return <Prediction question={question} options={options} right={right} chosen={chosen} choose={choose} words={say.exercise}>{children}</Prediction>;
}
