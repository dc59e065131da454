// What the colours of weights mean, up to the strongest one's, and the choice of their scale.
import type { ComponentChildren } from "preact";
import type { Scale } from "./colour";
import { level, shareColour, ticks } from "./colour";
import { say } from "./words";

const bar = (): string => `linear-gradient(90deg, ${Array.from({ length: 13 }, (_, step) => shareColour(step / 12, "linear")).join()})`;
const said = (share: number): string => String(Number(share.toPrecision(3)));

export function Legend({ scale, top = 1, onScale, children }: { scale: Scale; top?: number; onScale: (scale: Scale) => void; children?: ComponentChildren }) {
  return (
    <p class="key quiet">
      {say.weights}{" "}
      <span class="legend" aria-hidden="true" style={{ backgroundImage: bar() }}>
        {ticks(scale).map((share) => <i key={share} style={{ left: `${level(share, scale) * 100}%` }}>{said(share * top)}</i>)}
      </span>
      <select aria-label={say.legend.scale} value={scale} onChange={(event) => onScale(event.currentTarget.value as Scale)}>
        {Object.entries(say.legend.scales).map(([name, words]) => <option key={name} value={name}>{words}</option>)}
      </select>
      {children}
    </p>
  );
}
