// Tokens as buttons, each on a colour: one Tab stop, arrow keys walk.
import { roam, tabOf } from "../roving";
import { shownToken } from "./model";

type Paint = { background: string; color: string };

export function Tokens({ label, tokens, paint, on, words, numbered, written, hatched, onHover, onChoose }: {
  label: string;
  tokens: string[];
  paint?: ((place: number) => Paint | undefined) | undefined;
  on: number | null;
  words?: ((place: number) => string) | undefined; // what a colour stands for
  numbered?: boolean; // they stand below the tokens, too
  written?: number | undefined; // tokens from here on were written by the model
  hatched?: ((place: number) => boolean) | undefined;
  onHover?: ((place: number | null) => void) | undefined;
  onChoose: (place: number) => void;
}) {
  return (
    <div class={`tokens ${tokens.length > 40 ? "many" : ""}`} role="group" aria-label={label} onKeyDown={roam} onPointerLeave={() => onHover?.(null)}>
      {tokens.map((token, place) => {
        const hidden = hatched?.(place) ?? false;
        const value = words?.(place);
        return (
          <button
            type="button" key={place} tabIndex={tabOf(place === (on ?? 0))} aria-pressed={place === on}
            class={[hidden && "hidden", written !== undefined && place >= written && "written"].filter(Boolean).join(" ") || undefined}
            style={hidden ? undefined : paint?.(place)} title={value === undefined ? shownToken(token) : `${shownToken(token)}: ${value}`}
            onPointerEnter={(event) => event.pointerType === "mouse" && onHover?.(place)} onClick={() => onChoose(place)}
          >
            <bdi>{shownToken(token)}</bdi>{value !== undefined && (numbered ? <small>{value}</small> : <span class="sr">: {value}</span>)}
          </button>
        );
      })}
    </div>
  );
}
