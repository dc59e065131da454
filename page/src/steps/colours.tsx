// What the colours of weights mean, and the choice of their scale and range. A range is one for all heads: the same colour is the
// same number wherever it stands.
import type { Scale } from "../colour";
import { level, scales, ticks } from "../colour";
import { fixed } from "../grid";
import { largestWeight, topOf } from "../state";
import type { Range } from "../state";
import type { StepProps } from "./step";

const said = (share: number): string => String(Number(share.toPrecision(3)));

export function Colours({ p }: { p: StepProps }) {
  const { scale, range } = p.state;
  const narrow = topOf({ ...p.state, range: "narrow" });
  const top = topOf(p.state);
  return (
    <p class="key quiet">
      weights{" "}
      <span class="legend" aria-hidden="true">
        {ticks(scale).map((share) => <i key={share} style={{ left: `${level(share, scale) * 100}%` }}>{said(share * top)}</i>)}
      </span>
      <select aria-label="Scale of the weights' colours" value={scale} onChange={(event) => p.dispatch({ do: "scale", scale: event.currentTarget.value as Scale })}>
        {Object.entries(scales).map(([name, words]) => <option key={name} value={name}>{words}</option>)}
      </select>
      {range && narrow < 1 && (
        <>
          <select aria-label="Range of the weights' colours" value={range} onChange={(event) => p.dispatch({ do: "range", range: event.currentTarget.value as Range })}>
            <option value="narrow">from 0 to {narrow}</option>
            <option value="whole">from 0 to 1</option>
          </select>
          <span>in every head; the largest weight here is {fixed(largestWeight(p.state))}</span>
        </>
      )}
    </p>
  );
}
