// A matrix that can be touched: its numbers, or where they are too many to read, their colours.
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Rgb, Scale } from "./colour";
import { paint, shareColour, shareInk, shareRgb, signedColour, signedRgb, styleRgb } from "./colour";
import { formats, shortest, toClipboard } from "./copy";
import type { Grid } from "./grid";
import { at, cellUnder, fixed } from "./grid";
import type { Axis, Cursor } from "./state";
import { say } from "./words";

interface MatrixProps {
  name: string; // as in docs/json.md
  title?: string; // what stands above it; default: the name
  grid: Grid;
  rows: { axis: Axis; labels?: string[] };
  cols: { axis: Axis; labels?: string[] };
  share?: Scale; // numbers from 0 to 1, on one scale wherever they are
  top?: number; // the share that has the strongest colour; default: 1
  largest?: number; // what has the strongest colour, of numbers that are no shares; default: the matrix's own largest
  hidden?: (row: number, col: number) => boolean;
  cursor: Cursor; // what is highlighted
  onHover: (cursor: Cursor) => void;
  onLock: (cursor: Cursor) => void;
}

// Numbers are read in up to 8 columns; beyond that they are colours until asked for. More cells than the browser lays
// out within a keystroke's 100 ms are painted.
const mostReadable = 8;
const mostCells = 2600;
const mostLow = 12; // beyond so many rows a matrix without pairs of words has low ones
// Up to so many columns a weight's first two decimals are read in its cell.
const mostShort = 24;
const short = (share: number): string => (share >= 0.995 ? "1" : share.toFixed(2).replace(/^0/, ""));

export const largestOf = (grid: Grid): number => grid.data.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0);

interface RowProps {
  of: MatrixProps;
  row: number;
  label: string | undefined;
  largest: number;
  on: boolean; // the row is selected
  col: number; // the selected column, or -1
  tab: number; // the column that the Tab key reaches, or -1
}

// A row is drawn again only where something in it changed: a pointer that moves changes two of them.
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const now = this.props;
    return now.of.grid.data !== next.of.grid.data || now.label !== next.label || now.largest !== next.largest || now.of.share !== next.of.share || now.of.top !== next.of.top ||
      now.on !== next.on || now.col !== next.col || now.tab !== next.tab;
  }

  override render({ of, row, label, largest, on, col: selected, tab }: RowProps) {
    const { grid, share, hidden, top = 1 } = of;
    return (
      <tr class={on ? "on" : undefined}>
        {label !== undefined && <th scope="row" title={label}><bdi>{label}</bdi></th>}
        {Array.from({ length: grid.cols }, (_, col) => {
          const value = at(grid, row, col);
          const masked = hidden?.(row, col) ?? false;
          const style = masked ? undefined : share ? { background: shareColour(value / top, share), color: shareInk(value / top, share) } : { background: signedColour(value, largest) };
          const classes = [masked && "hidden", col === selected && "in-col", on && col === selected && "cell"].filter(Boolean).join(" ");
          return (
            <td role="gridcell" key={col} data-col={col} data-value={shortest(value)} data-short={share && !masked && grid.cols <= mostShort ? short(value) : undefined} style={style} class={classes || undefined} tabIndex={col === tab ? 0 : -1}>
              <span class={masked && share ? "sr" : undefined}>{masked && share ? say.hidden : fixed(value)}</span>
            </td>
          );
        })}
      </tr>
    );
  }
}

const steps: Record<string, [number, number]> = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
// Where a key leads from a cell, as in any grid (WAI-ARIA's grid pattern).
const moved = (event: KeyboardEvent, grid: Grid, row: number, col: number): [number, number] | null => {
  const clamp = (place: number, count: number) => Math.min(Math.max(place, 0), count - 1);
  const step = steps[event.key];
  if (step) return [clamp(row + step[0], grid.rows), clamp(col + step[1], grid.cols)];
  if (event.key === "Home") return [event.ctrlKey ? 0 : row, 0];
  if (event.key === "End") return [event.ctrlKey ? grid.rows - 1 : row, grid.cols - 1];
  return null;
};

function Cells(props: MatrixProps & { digits: boolean }) {
  const { grid, rows, cols, cursor, digits, name } = props;
  const table = useRef<HTMLTableElement>(null);
  const row = cursor[rows.axis] ?? -1;
  const col = cursor[cols.axis] ?? -1;
  const [tabRow, tabCol] = [Math.min(Math.max(row, 0), grid.rows - 1), Math.min(Math.max(col, 0), grid.cols - 1)];
  const largest = props.largest ?? largestOf(grid);
  // What has no words has its number, where there is room for it.
  const numbered = (count: number): string[] | undefined => (digits ? Array.from({ length: count }, (_, place) => String(place + 1)) : undefined);
  const rowLabels = rows.labels ?? numbered(grid.rows);
  const colLabels = cols.labels ?? numbered(grid.cols);
  const cursorAt = (r: number, c: number): Cursor => ({ [rows.axis]: r, [cols.axis]: c, on: name });
  const cellOf = (event: Event): [number, number] | null => {
    const cell = (event.target as Element).closest("td");
    return cell?.dataset.col === undefined ? null : [(cell.parentElement as HTMLTableRowElement).sectionRowIndex, Number(cell.dataset.col)];
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const from = cellOf(event);
    if (!from) return;
    const to = moved(event, grid, ...from);
    if (event.key === "Enter") props.onLock(cursorAt(...from));
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    props.onLock(cursorAt(...to));
    table.current?.tBodies[0]?.rows[to[0]]?.querySelector<HTMLElement>(`td[data-col="${to[1]}"]`)?.focus();
  };
  return (
    <table
      ref={table} role="grid" aria-label={say.matrix.label(props.title ?? name, grid.rows, grid.cols)} class={`${digits ? "digits" : "colours"} ${cols.labels ? "pairs" : grid.rows > mostLow ? "low" : ""}`}
      onPointerOver={(event) => { const cell = event.pointerType === "mouse" && cellOf(event); if (cell) props.onHover(cursorAt(...cell)); }}
      onPointerLeave={() => props.onHover({})}
      onClick={(event) => { const cell = cellOf(event); if (cell) props.onLock(cursorAt(...cell)); }}
      onKeyDown={onKeyDown}
    >
      {colLabels && (
        <thead>
          <tr>
            {rowLabels && <td class="corner" />}
            {colLabels.map((label, c) => <th scope="col" key={c} title={label} class={c === col ? "on" : undefined}><bdi>{label}</bdi></th>)}
          </tr>
        </thead>
      )}
      <tbody>
        {Array.from({ length: grid.rows }, (_, r) => (
          <Row key={r} of={props} row={r} label={rowLabels?.[r]} largest={largest} on={r === row} col={col} tab={r === tabRow ? tabCol : -1} />
        ))}
      </tbody>
    </table>
  );
}

// The same for matrices of many cells: a canvas of one pixel a cell, and the selection laid over it, so that a pointer that
// moves paints nothing again.
function Painted(props: MatrixProps) {
  const { grid, rows, cols, share, hidden, cursor, name, top = 1 } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = Math.max(3, Math.floor(640 / Math.max(grid.rows, grid.cols)));
  const row = cursor[rows.axis] ?? 0;
  const col = cursor[cols.axis] ?? 0;
  const scheme = ["--zero", "--negative", "--positive", "--wash", "--line"].map(styleRgb);
  useEffect(() => {
    const largest = props.largest ?? largestOf(grid);
    const [zero, negative, positive, wash, line] = scheme as [Rgb, Rgb, Rgb, Rgb, Rgb];
    paint(canvas.current!, grid.rows, grid.cols, (r, c) => {
      if (hidden?.(r, c)) return (r + c) % 3 === 0 ? line : wash;
      return share ? shareRgb(at(grid, r, c) / top, share) : signedRgb(at(grid, r, c), largest, { zero, negative, positive });
    });
  }, [grid.data, share, top, props.largest, String(scheme)]);
  const cellOf = (event: MouseEvent): [number, number] => cellUnder(event, canvas.current!, grid.rows, grid.cols);
  const cursorAt = ([r, c]: [number, number]): Cursor => ({ [rows.axis]: r, [cols.axis]: c, on: name });
  const onPointerMove = (event: PointerEvent) => {
    const cell = cellOf(event);
    if (event.pointerType === "mouse" && (cell[0] !== row || cell[1] !== col)) props.onHover(cursorAt(cell));
  };
  // Keys may come faster than the page is drawn: the next one goes on from where the last one led.
  const reached = useRef<[number, number]>([row, col]);
  reached.current = [row, col];
  const onKeyDown = (event: KeyboardEvent) => {
    const to = moved(event, grid, ...reached.current);
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    reached.current = to;
    props.onLock(cursorAt(to));
  };
  const part = (place: number, count: number): string => `${(place / count) * 100}%`;
  return (
    <div class="painted" style={{ width: `${grid.cols * size}px` }}>
      <canvas
        ref={canvas} tabIndex={0} role="img"
        aria-label={say.matrix.painted(say.matrix.label(props.title ?? name, grid.rows, grid.cols))}
        onPointerMove={onPointerMove}
        onPointerLeave={() => props.onHover({})}
        onClick={(event) => props.onLock(cursorAt(cellOf(event)))}
        onKeyDown={onKeyDown}
      />
      <i style={{ top: part(row, grid.rows), height: part(1, grid.rows), width: "100%" }} />
      <i style={{ left: part(col, grid.cols), width: part(1, grid.cols), height: "100%" }} />
    </div>
  );
}

function CopyMenu({ name, grid }: { name: string; grid: Grid }) {
  const [said, setSaid] = useState("");
  const copy = async (form: string) => {
    const copied = await toClipboard(formats[form]!(name, grid));
    setSaid(copied ? say.matrix.copied(form) : say.matrix.closed);
    setTimeout(() => setSaid(""), 1600);
  };
  return (
    <span class="copy">
      <select
        aria-label={say.matrix.copyAs(name)} value=""
        onChange={(event) => { void copy(event.currentTarget.value); event.currentTarget.value = ""; }}
      >
        <option value="" disabled>{say.matrix.copy}</option>
        {Object.keys(formats).map((form) => <option key={form}>{form}</option>)}
      </select>
      <span role="status">{said}</span>
    </span>
  );
}

export function Matrix(props: MatrixProps) {
  const { grid, name, title } = props;
  const [asked, setAsked] = useState(false);
  const readable = grid.cols <= mostReadable;
  const painted = grid.rows * grid.cols > mostCells;
  return (
    <figure class="matrix" data-name={name}>
      <figcaption>
        <b>{title ?? name}</b> <span class="shape">[{grid.rows},{grid.cols}]</span>
        {!readable && !painted && <button type="button" class="quiet" aria-pressed={asked} onClick={() => setAsked(!asked)}>{say.matrix.digits}</button>}
        <CopyMenu name={name} grid={grid} />
      </figcaption>
      <div class="scroll">{painted ? <Painted {...props} /> : <Cells {...props} digits={readable || asked} />}</div>
    </figure>
  );
}
