// The legend of weights, and the choice of its range: one for all heads, so that the same colour is the same number wherever
// it stands.
import { fixed } from "../grid";
import { Legend } from "../legend";
import { largestWeight, topOf } from "../state";
import type { Range } from "../state";
import { say } from "../words";
import type { StepProps } from "./step";

export function Colours({ p: { state, dispatch } }: { p: StepProps }) {
  const narrow = topOf({ ...state, range: "narrow" });
  return (
    <Legend scale={state.scale} top={topOf(state)} onScale={(scale) => dispatch({ do: "scale", scale })}>
      {state.range && narrow < 1 && (
        <>
          <select aria-label={say.legend.range} value={state.range} onChange={(event) => dispatch({ do: "range", range: event.currentTarget.value as Range })}>
            <option value="narrow">{say.legend.upTo(narrow)}</option>
            <option value="whole">{say.legend.upTo(1)}</option>
          </select>
          <span>{say.legend.largest(fixed(largestWeight(state)))}</span>
        </>
      )}
    </Legend>
  );
}
