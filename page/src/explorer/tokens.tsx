// Tokens as buttons, each on a colour: one Tab stop, arrow keys walk.
import { useRef } from "preact/hooks";
import { shownToken } from "./model";

type Paint = { background: string; color: string };

export function Tokens({ label, tokens, paint, on, words, written, hatched, onHover, onChoose }: {
  label: string;
  tokens: string[];
  paint?: ((place: number) => Paint | undefined) | undefined;
  on: number | null;
  words?: ((place: number) => string) | undefined; // what a colour stands for
  written?: number | undefined; // tokens from here on were written by the model
  hatched?: ((place: number) => boolean) | undefined;
  onHover?: ((place: number | null) => void) | undefined;
  onChoose: (place: number) => void;
}) {
  const list = useRef<HTMLDivElement>(null);
  const stop = on ?? 0;
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    const from = Number((event.target as HTMLElement).dataset.place);
    if (step === undefined || Number.isNaN(from)) return;
    event.preventDefault();
    const to = Math.min(Math.max(from + step, 0), tokens.length - 1);
    onChoose(to);
    list.current?.querySelector<HTMLElement>(`[data-place="${to}"]`)?.focus();
  };
  return (
    <div ref={list} class={`tokens ${tokens.length > 40 ? "many" : ""}`} role="group" aria-label={label} onKeyDown={onKeyDown} onPointerLeave={() => onHover?.(null)}>
      {tokens.map((token, place) => {
        const hidden = hatched?.(place) ?? false;
        const value = words?.(place);
        return (
          <button
            type="button" key={place} data-place={place} tabIndex={place === stop ? 0 : -1} aria-pressed={place === on}
            class={[hidden && "hidden", written !== undefined && place >= written && "written"].filter(Boolean).join(" ") || undefined}
            style={hidden ? undefined : paint?.(place)} title={value === undefined ? shownToken(token) : `${shownToken(token)}: ${value}`}
            onPointerEnter={(event) => event.pointerType === "mouse" && onHover?.(place)} onClick={() => onChoose(place)}
          >
            <bdi>{shownToken(token)}</bdi>{value !== undefined && <span class="sr">: {value}</span>}
          </button>
        );
      })}
    </div>
  );
}
