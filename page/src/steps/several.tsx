// Why there are several heads: what two of them give in one row, beside what one could.
import { argmax, at, fixed, gridOf, headsOf, rowOf } from "../grid";
import { say } from "../words";
import { key, word } from "./step";
import type { StepProps } from "./step";

interface Look {
  head: number;
  key: number; // that it gives most to
  weight: number;
}

// The two heads that give most in a row, each to another key; null where all give most to the same.
const apart = (looks: Look[]): [Look, Look] | null => {
  const falling = [...looks].sort((a, b) => b.weight - a.weight);
  const other = falling.find((look) => look.key !== falling[0]!.key);
  return other ? [falling[0]!, other] : null;
};

function Shown({ p }: { p: StepProps }) {
  const says = say.picture.several;
  const looks = Array.from({ length: headsOf(p.trace) }, (_, head): Look => {
    const weights = gridOf(p.trace, "weights", head);
    const best = argmax(rowOf(weights, p.sel.i));
    return { head, key: best, weight: at(weights, p.sel.i, best) };
  });
  if (looks.length === 1) return <p>{says.one}</p>;
  const found = apart(looks);
  if (!found) return <p>{says.alike(word(p, p.sel.i), key(p, looks[0]!.key))}</p>;
  const sum = found[0].weight + found[1].weight;
  const [first, second] = found.map((look): [number, string, string] => [look.head, key(p, look.key), fixed(look.weight)]);
  return <p>{says.apart(word(p, p.sel.i), first!, second!, fixed(sum))} {sum > 1 && says.over}</p>;
}

export const Several = ({ p }: { p: StepProps }) => (
  <details class="growth several">
    <summary>{say.picture.several.title}</summary>
    <p>{say.picture.several.rule}</p>
    <Shown p={p} />
  </details>
);
