// A map as a drawing of its own, to be saved: SVG, or PNG through it.
import { render } from "preact";
import type { Scale } from "./colour";
import { shareColour, shareInk, ticks } from "./colour";
import type { Grid } from "./grid";
import { at } from "./grid";
import { say } from "./words";

const cell = 34;
const mostNumbers = 32; // words to a side, beyond which cells are too many to read
const letter = 7.2; // of 12 px DejaVu Sans, on average
const longest = (labels: string[]): number => Math.min(Math.max(...labels.map((label) => label.length)), 24) * letter + 14;
const short = (label: string): string => (label.length <= 24 ? label : `${label.slice(0, 23)}…`);

export interface Picture {
  title: string;
  grid: Grid; // of weights
  rows: string[];
  cols: string[];
  hidden: (row: number, col: number) => boolean;
  scale: Scale;
  top: number; // the share of the strongest colour
}

// Only attributes, no styles: a page under a strict policy, an editor and a printer draw it alike.
function Drawing({ title, grid, rows, cols, hidden, scale, top: strongest }: Picture) {
  const left = longest(rows);
  const top = longest(cols) * 0.75 + 40;
  const [width, height] = [left + grid.cols * cell + 24, top + grid.rows * cell + 46];
  const legend = Array.from({ length: 64 }, (_, step) => step / 63);
  return (
    <svg xmlns="http://www.w3.org/2000/svg" width={width} height={height} viewBox={`0 0 ${width} ${height}`} font-family="DejaVu Sans, Verdana, sans-serif" font-size="12">
      <title>{title}</title>
      <rect width={width} height={height} fill="#ffffff" />
      <text x="12" y="22" font-size="14" font-weight="bold" fill="#171b22">{short(title)}</text>
      {cols.map((label, j) => (
        <text fill="#171b22" transform={`translate(${left + (j + 0.6) * cell} ${top - 8}) rotate(-45)`}>{short(label)}</text>
      ))}
      {rows.map((label, i) => (
        <text fill="#171b22" x={left - 8} y={top + (i + 0.5) * cell + 4} text-anchor="end">{short(label)}</text>
      ))}
      {rows.map((_, i) =>
        cols.map((_, j) => (
          <>
            <rect
              x={left + j * cell + 1} y={top + i * cell + 1} width={cell - 2} height={cell - 2} rx="3"
              fill={hidden(i, j) ? "#e6e9ee" : shareColour(at(grid, i, j) / strongest, scale, "white")}
            />
            {!hidden(i, j) && grid.cols <= mostNumbers && (
              <text x={left + (j + 0.5) * cell} y={top + (i + 0.5) * cell + 4} text-anchor="middle" font-size="10" fill={shareInk(at(grid, i, j) / strongest, scale, "white")}>{at(grid, i, j).toFixed(2)}</text>
            )}
          </>
        )),
      )}
      {legend.map((share) => <rect x={left + share * 160} y={height - 32} width="3.2" height="8" fill={shareColour(share, "linear", "white")} />)}
      <text fill="#4c5664" font-size="10" x={left} y={height - 10}>{ticks(scale)[0]! * strongest}</text>
      <text fill="#4c5664" font-size="10" x={left + 163} y={height - 10} text-anchor="end">{strongest}, {say.legend.scales[scale]}</text>
    </svg>
  );
}

const drawn = (picture: Picture): { text: string; width: number; height: number } => {
  const host = document.createElement("div");
  render(<Drawing {...picture} />, host);
  const svg = host.querySelector("svg")!;
  return { text: new XMLSerializer().serializeToString(svg), width: Number(svg.getAttribute("width")), height: Number(svg.getAttribute("height")) };
};

export const save = (blob: Blob, name: string): void => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

export const saveSvg = (picture: Picture, name = "attention"): void =>
  save(new Blob([drawn(picture).text], { type: "image/svg+xml" }), `${name}.svg`);

export const savePng = async (picture: Picture, name = "attention"): Promise<void> => {
  const { text, width, height } = drawn(picture);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  const context = canvas.getContext("2d")!;
  context.scale(2, 2);
  context.drawImage(image, 0, 0);
  canvas.toBlob((blob) => { if (blob) save(blob, `${name}.png`); }, "image/png");
};
