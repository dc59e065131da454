// All heads at a glance: layers x heads, or the heads of one label, or by one score.
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Scale } from "../colour";
import { paintValues, shareRgb } from "../colour";
import { Glossary } from "../glossary";
import type { Grid } from "../grid";
import type { Head, HeadId, Layer, Pass } from "./model";
import { headOf, labelNames, labelText, mapOf, sameHead, topOf } from "./model";
import type { State, Store } from "./store";

const Thumbnail = memo(function Thumbnail({ map, top, scale }: { map: Grid; top: number; scale: Scale; dark: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => paintValues(canvas.current!, map, (value) => shareRgb(value / top, scale)));
  return <canvas ref={canvas} aria-hidden="true" />;
});

const scores = ["sink", "self", "previous", "duplicate", "induction", "local", "entropy", "distance"] as const;
type Order = "layer" | (typeof scores)[number];
const scoreOf = (head: Head, score: string): number | null => {
  const excess = head.excess as Record<string, number | null> | undefined;
  return (excess?.[score] ?? head[score] ?? null) as number | null;
};

const ordered = (pass: Pass, order: Order, label: string): Head[] => {
  const chosen = label === "" ? [...pass.heads] : pass.heads.filter((head) => labelNames(head).includes(label));
  return order === "layer" ? chosen : chosen.filter((head) => scoreOf(head, order) !== null).sort((a, b) => scoreOf(b, order)! - scoreOf(a, order)!);
};

function Cell({ store, state, head, title, dark }: { store: Store; state: State; head: Head; title: string | undefined; dark: boolean }) {
  const id: HeadId = [head.layer, head.head];
  const on = sameHead(state.locked.head, id);
  const out = state.without.some((each) => sameHead(each, id));
  return (
    <button
      type="button" role="gridcell" data-head={head.name} tabIndex={on ? 0 : -1} aria-selected={on} class={out ? "out" : undefined} title={`head ${head.name}: ${labelText(head)}`} aria-label={`head ${head.name}${out ? ", taken out" : ""}: ${labelText(head)}`}
      onPointerEnter={(event) => event.pointerType === "mouse" && store.hover({ head: id })} onClick={() => store.lock({ head: id })}
    >
      <Thumbnail map={mapOf(state.pass!, id)} top={topOf(state.pass!, id)} scale={state.scale} dark={dark} />
      {title !== undefined && <small>{title}</small>}
    </button>
  );
}

export function Overview({ store, state }: { store: Store; state: State }) {
  const pass = state.pass!;
  const [order, setOrder] = useState<Order>("layer");
  const [label, setLabel] = useState("");
  const grid = useRef<HTMLDivElement>(null);
  const heads = ordered(pass, order, label);
  const labels = [...new Set(pass.heads.flatMap(labelNames))].sort();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches; // its maps are drawn anew
  const byLayer = order === "layer" && label === "";
  const onKeyDown = (event: KeyboardEvent) => {
    const columns = byLayer ? pass.layers[0]!.heads.length : 1;
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const step = steps[event.key];
    const from = heads.findIndex(({ name }) => name === (event.target as HTMLElement).dataset.head);
    const to = step === undefined || from < 0 ? undefined : heads[from + step];
    if (!to) return;
    event.preventDefault();
    store.lock({ head: [to.layer, to.head] });
    grid.current?.querySelector<HTMLElement>(`[data-head="${CSS.escape(to.name)}"]`)?.focus();
  };
  // Self-attention, cross-attention and an encoder's are different things: each has a part of its own.
  const partOf = ({ name, kind }: Layer): string => (name.startsWith("encoder.") ? "encoder" : kind === "cross" ? "cross" : name.startsWith("decoder.") ? "decoder" : "");
  const parts = [...new Set(pass.layers.map(partOf))];
  const titles: Record<string, string> = { encoder: "The encoder's heads", cross: "Cross-attention: the decoder looks at the encoder's text", decoder: "The decoder's heads, in its own text", "": "" };
  return (
    <section class="overview" aria-label="All heads">
      <header>
        <h2>{heads.length === pass.heads.length ? `${heads.length} heads` : `${heads.length} of ${pass.heads.length} heads`}</h2>
        <label>order <select value={order} onChange={(event) => setOrder(event.currentTarget.value as Order)}>
          <option value="layer">by layer</option>
          {scores.map((score) => <option key={score} value={score} disabled={!pass.heads.some((head) => scoreOf(head, score) !== null)}>{score}, largest first</option>)}
        </select></label>
        {labels.length > 0 && <label>that are <select value={label} onChange={(event) => setLabel(event.currentTarget.value)}>
          <option value="">anything</option>
          {labels.map((name) => <option key={name}>{name}</option>)}
        </select></label>}
      </header>
      <p class="quiet">Each square is a head: its rows are the words that look, its columns those that are looked at. The farther a colour is from the paper’s, the more it gives. Click one.</p>
      <div ref={grid} role="grid" aria-label="Heads" onKeyDown={onKeyDown} onPointerLeave={() => store.hover({})} class={byLayer ? `layers ${pass.layers.length > 12 ? "many" : ""}` : "flow"}>
        {byLayer
          ? parts.map((part) => (
              <div key={part} role="rowgroup" class="part">
                {titles[part] && <h3>{titles[part]}</h3>}
                {pass.layers.map((layer, l) => partOf(layer) === part && (
                  <div role="row" key={l} class="layer" style={{ "--heads": Math.max(...pass.layers.map(({ heads: own }) => own.length)) }}>
                    <span role="rowheader" class="number">{layer.name.replace(/\D+/g, "")}</span>
                    {layer.heads.map((head) => <Cell key={head} store={store} state={state} head={headOf(pass, [l, head])!} title={undefined} dark={dark} />)}
                  </div>
                ))}
              </div>
            ))
          : <div role="row" class="layer">{heads.map((head) => <Cell key={head.name} store={store} state={state} head={head} title={order === "layer" ? head.name : `${head.name} ${scoreOf(head, order)!.toFixed(2)}`} dark={dark} />)}</div>}
      </div>
      <Glossary of={["head", "query", "key", "weight", "norm", "residual stream", "MLP", "sink", "besides", "previous", "duplicate", "induction", "local", "broad", "entropy", "lift"]} />
    </section>
  );
}
