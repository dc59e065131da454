// The legend of weights, and the choice of its range: one for all heads, so that the same colour is the same number wherever
// it stands.
import { fixed } from "../grid";
import { Legend } from "../legend";
import { largestWeight, topOf } from "../state";
import type { Range } from "../state";
import type { StepProps } from "./step";

export function Colours({ p: { state, dispatch } }: { p: StepProps }) {
  const narrow = topOf({ ...state, range: "narrow" });
  return (
    <Legend scale={state.scale} top={topOf(state)} onScale={(scale) => dispatch({ do: "scale", scale })}>
      {state.range && narrow < 1 && (
        <>
          <select aria-label="Range of the weights' colours" value={state.range} onChange={(event) => dispatch({ do: "range", range: event.currentTarget.value as Range })}>
            <option value="narrow">from 0 to {narrow}</option>
            <option value="whole">from 0 to 1</option>
          </select>
          <span>in every head; the largest weight here is {fixed(largestWeight(state))}</span>
        </>
      )}
    </Legend>
  );
}
