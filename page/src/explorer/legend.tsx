// What the colours of weights mean, and the choice of their scale.
import type { Scale } from "../colour";
import { level, scales, ticks } from "../colour";

export function Legend({ scale, onScale }: { scale: Scale; onScale: (scale: Scale) => void }) {
  return (
    <p class="key quiet">
      weights{" "}
      <span class="legend" aria-hidden="true">
        {ticks(scale).map((share) => <i key={share} style={{ left: `${level(share, scale) * 100}%` }}>{share}</i>)}
      </span>
      <select aria-label="Scale of the weights' colours" value={scale} onChange={(event) => onScale(event.currentTarget.value as Scale)}>
        {Object.entries(scales).map(([name, words]) => <option key={name} value={name}>{words}</option>)}
      </select>
    </p>
  );
}
