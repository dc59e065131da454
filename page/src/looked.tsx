// What one token gives to each: tokens on the colours of their shares, with these below.
import { shareColour, shareInk } from "./colour";

export const Looked = ({ tokens, weights, query, label, percent }: { tokens: string[]; weights: number[]; query?: number | undefined; label: string; percent: (share: number) => string }) => (
  <ol class="looked" aria-label={label}>
    {tokens.map((token, place) => (
      <li key={place} class={place === query ? "it" : undefined} data-weight={weights[place]}>
        <span style={{ background: shareColour(weights[place]!, "sqrt"), color: shareInk(weights[place]!, "sqrt") }}>{token}</span>
        <small>{percent(weights[place]!)}</small>
      </li>
    ))}
  </ol>
);
