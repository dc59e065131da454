// The map of one head: all pairs, or a part of them, each exact where there is a pixel for it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Rgb } from "../colour";
import { shareRgb, styleRgb } from "../colour";
import type { Grid } from "../grid";
import { at, cellUnder } from "../grid";
import type { HeadId } from "./model";
import { isExact, mapOf, shownToken, topOf } from "./model";
import type { State, Store } from "./store";

type Span = [begin: number, end: number];
interface View {
  queries: Span;
  keys: Span;
}
interface Shown extends View {
  grid: Grid;
  reduction: string;
}

const most = 512; // rows and columns that are drawn
const largest = 480; // pixels of a side
const leastLabel = 13; // pixels of a row that has a word

const sizeOf = ([begin, end]: Span): number => end - begin;
const side = (count: number, other: number): number => Math.round((largest * count) / Math.max(count, other));
const part = (place: number, [begin, end]: Span): string => `${((place - begin) / (end - begin)) * 100}%`;

// A map between the words of its rows and of its columns, where there is room for them, with the selected pair outlined.
export function Framed({ queries, keys, cell, rows = [0, queries.length], cols = [0, keys.length], children }: { queries: string[]; keys: string[]; cell: [number, number]; rows?: Span; cols?: Span; children: ComponentChildren }) {
  const [height, width] = [sizeOf(rows), sizeOf(cols)];
  const labels = (tokens: string[], [begin, end]: Span, pixels: number) => ((end - begin) * leastLabel <= pixels ? tokens.slice(begin, end).map((token) => shownToken(token)) : null);
  const rowLabels = labels(queries, rows, side(height, width));
  const colLabels = labels(keys, cols, side(width, height));
  return (
    <div class={`frame ${rowLabels || colLabels ? "" : "bare"}`} style={{ "--side": `${side(width, height)}px`, aspectRatio: `${width} / ${height}` }}>
      {colLabels && <div class="columns-words" aria-hidden="true">{colLabels.map((token, place) => <span key={place} style={{ left: `${((place + 0.5) / width) * 100}%` }} class={cols[0] + place === cell[1] ? "on" : undefined}>{token}</span>)}</div>}
      {rowLabels && <div class="row-words" aria-hidden="true">{rowLabels.map((token, place) => <span key={place} style={{ top: `${((place + 0.5) / height) * 100}%` }} class={rows[0] + place === cell[0] ? "on" : undefined}>{token}</span>)}</div>}
      {children}
      <i style={{ top: part(cell[0], rows), height: `${100 / height}%`, left: part(cell[1], cols), width: `${100 / width}%` }} hidden={cell[0] < rows[0] || cell[0] >= rows[1] || cell[1] < cols[0] || cell[1] >= cols[1]} />
    </div>
  );
}

// Zoomed by a factor about a pair, within all.
const zoomed = (span: Span, about: number, factor: number, count: number): Span => {
  const size = Math.min(count, Math.max(Math.min(count, 4), Math.round(sizeOf(span) * factor)));
  const begin = Math.round(about - ((about - span[0]) / sizeOf(span)) * size);
  const first = Math.min(Math.max(begin, 0), count - size);
  return [first, first + size];
};
const moved = (span: Span, by: number, count: number): Span => {
  const first = Math.min(Math.max(span[0] + by, 0), count - sizeOf(span));
  return [first, first + sizeOf(span)];
};

// One canvas pixel a cell, scaled without smoothing; what is hidden is hatched.
const draw = (canvas: HTMLCanvasElement, { grid }: Shown, top: number, scale: State["scale"], without: number | null): void => {
  const [wash, line] = ["--wash", "--line"].map(styleRgb) as [Rgb, Rgb];
  const cell = Math.max(1, Math.floor(largest / Math.max(grid.rows, grid.cols)));
  const image = new ImageData(grid.cols * cell, grid.rows * cell);
  const pixels = new Uint32Array(image.data.buffer);
  const packed = ([r, g, b]: Rgb) => (255 << 24) | (b << 16) | (g << 8) | r;
  const [dark, light] = [packed(line), packed(wash)];
  for (let y = 0; y < image.height; ++y)
    for (let c = 0; c < grid.cols; ++c) {
      const value = c === without ? NaN : at(grid, Math.floor(y / cell), c);
      const colour = Number.isNaN(value) ? 0 : packed(shareRgb(value / top, scale));
      for (let x = c * cell; x < (c + 1) * cell; ++x) pixels[y * image.width + x] = Number.isNaN(value) ? ((x + y) % 6 === 0 ? dark : light) : colour;
    }
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d")!.putImageData(image, 0, 0);
};

export function Map({ store, state, id, queries, keys, cell, sink }: { store: Store; state: State; id: HeadId; queries: string[]; keys: string[]; cell: [number, number]; sink: number | null }) {
  const whole: View = { queries: [0, queries.length], keys: [0, keys.length] };
  const [view, setView] = useState<View>(whole);
  const [shown, setShown] = useState<Shown | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { pass } = state;
  const isWhole = sizeOf(view.queries) === queries.length && sizeOf(view.keys) === keys.length;
  // The last view that was asked for is the one that is drawn; until it is there the one before stays.
  // Of a long text, blocks that are at hand come first.
  const asked = useRef(0);
  useEffect(() => {
    const turn = ++asked.current;
    const blocks = mapOf(pass!, id);
    if (isWhole) setShown({ ...whole, grid: blocks, reduction: isExact(pass!.layers[id[0]]!, blocks) ? "" : "sum over keys, mean over queries" });
    store.map(id, view.queries, view.keys, most).then(
      ({ grid, queries: rows, keys: cols, reduction }) => { if (turn === asked.current) setShown({ grid, queries: rows as Span, keys: cols as Span, reduction }), setFailed(null); },
      (error: Error) => { if (turn === asked.current) setFailed(error.message); },
    );
  }, [pass, id[0], id[1], view]);
  useEffect(() => { if (shown && canvas.current) draw(canvas.current, shown, topOf(pass!, id), state.scale, sink === null || shown.grid.cols !== sizeOf(shown.keys) ? null : sink - shown.keys[0]); });
  // A wheel that turns over the map zooms; the browser lets only a listener that is not passive keep the page still.
  useEffect(() => {
    const element = canvas.current!;
    const onWheel = (event: WheelEvent) => {
      const [row, col] = pairAt(event);
      event.preventDefault();
      setView((now) => zoomView(now, row, col, event.deltaY > 0 ? 1.25 : 0.8));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  });
  const zoomView = (now: View, row: number, col: number, factor: number): View => ({ queries: zoomed(now.queries, row, factor, queries.length), keys: zoomed(now.keys, col, factor, keys.length) });
  const pairAt = (event: MouseEvent): [number, number] => {
    const { queries: rows, keys: cols } = shown ?? view;
    const [row, col] = cellUnder(event, canvas.current!, sizeOf(rows), sizeOf(cols));
    return [rows[0] + row, cols[0] + col];
  };
  const drag = useRef<{ x: number; y: number; view: View; moved: boolean } | null>(null);
  // Two fingers zoom: by how far they are apart, beside how far they were.
  const fingers = useRef<Record<number, PointerEvent>>({});
  const apart = useRef<{ distance: number; view: View; about: [number, number] } | null>(null);
  const distance = (): number => {
    const [a, b] = Object.values(fingers.current) as [PointerEvent, PointerEvent];
    return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
  };
  const onPointerDown = (event: PointerEvent) => {
    canvas.current!.setPointerCapture(event.pointerId);
    fingers.current[event.pointerId] = event;
    const two = Object.keys(fingers.current).length === 2;
    drag.current = two ? null : { x: event.clientX, y: event.clientY, view, moved: false };
    apart.current = two ? { distance: distance(), view, about: pairAt(event) } : null;
  };
  const onPointerEnd = (event: PointerEvent) => {
    const clicked = event.type === "pointerup" && drag.current && !drag.current.moved;
    delete fingers.current[event.pointerId];
    drag.current = apart.current = null;
    if (!clicked) return;
    const [query, key] = pairAt(event);
    store.lock({ query, key });
  };
  const onPointerMove = (event: PointerEvent) => {
    const from = drag.current;
    if (event.pointerId in fingers.current) fingers.current[event.pointerId] = event;
    if (apart.current) {
      const { distance: was, view: of, about } = apart.current;
      setView(zoomView(of, about[0], about[1], was / Math.max(distance(), 1)));
    } else if (from) {
      const box = canvas.current!.getBoundingClientRect();
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(dx) + Math.abs(dy) > 4) from.moved = true;
      if (!from.moved) return;
      const by = (pixels: number, length: number, span: Span) => -Math.round((pixels / length) * sizeOf(span));
      setView({ queries: moved(from.view.queries, by(dy, box.height, from.view.queries), queries.length), keys: moved(from.view.keys, by(dx, box.width, from.view.keys), keys.length) });
    } else if (event.pointerType === "mouse") {
      const [query, key] = pairAt(event);
      store.hover({ query, key });
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    const zoom = { "+": 0.8, "=": 0.8, "-": 1.25 }[event.key];
    if (step) {
      const clamp = (place: number, count: number) => Math.min(Math.max(place, 0), count - 1);
      const [query, key] = [clamp(cell[0] + step[0], queries.length), clamp(cell[1] + step[1], keys.length)];
      store.lock({ query, key });
      const follow = (span: Span, place: number, count: number): Span => (place < span[0] ? moved(span, place - span[0], count) : place >= span[1] ? moved(span, place - span[1] + 1, count) : span);
      setView((now) => ({ queries: follow(now.queries, query, queries.length), keys: follow(now.keys, key, keys.length) }));
    } else if (zoom !== undefined) setView((now) => zoomView(now, cell[0], cell[1], zoom));
    else if (event.key === "0") setView(whole);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const of = shown ?? { ...view, grid: { rows: 1, cols: 1, data: new Float32Array(1) }, reduction: "" };
  const [rows, cols] = [sizeOf(of.queries), sizeOf(of.keys)];
  const exact = of.grid.rows === rows && of.grid.cols === cols;
  return (
    <figure class="map">
      <Framed queries={queries} keys={keys} cell={cell} rows={of.queries} cols={of.keys}>
        <canvas
          ref={canvas} tabIndex={0} role="img" aria-label={`Map of the head, queries ${of.queries[0]} to ${of.queries[1] - 1}, keys ${of.keys[0]} to ${of.keys[1] - 1}: arrow keys choose a pair, plus and minus zoom, 0 shows all`}
          data-rows={of.grid.rows} data-cols={of.grid.cols} data-queries={of.queries.join()} data-keys={of.keys.join()}
          onPointerDown={onPointerDown} onPointerUp={onPointerEnd} onPointerCancel={onPointerEnd}
          onPointerMove={onPointerMove} onPointerLeave={() => store.hover({})} onKeyDown={onKeyDown}
        />
      </Framed>
      <figcaption class="quiet">
        <b class="badge">{exact ? "exact" : "blocks"}</b>{" "}
        {exact ? `each of ${rows} x ${cols} pairs` : `blocks of ${Math.ceil(rows / of.grid.rows)} queries x ${Math.ceil(cols / of.grid.cols)} keys: ${of.reduction}`}
        {!isWhole && <> · <button type="button" class="quiet" onClick={() => setView(whole)}>show all</button></>}
        {" · "}rows look, columns are looked at; wheel, plus and minus zoom
        {sink !== null && <> · the column of <bdi>{shownToken(keys[sink]!)}</bdi>, the sink, is left out</>}
        {failed && <span class="problem"> {failed}</span>}
      </figcaption>
    </figure>
  );
}
