import { interpolateCividis } from "d3-scale-chromatic";
import type { Grid } from "./grid";

export type Rgb = [number, number, number];

// A share from 0 to 1: the same colour for the same number, in every head and every step. Its square root is what is
// coloured unless the reader asks for the share itself: among ten words shares are small, and would all be dark.
// The names and the four decades are those of the library's pictures (attend/picture.h).
export type Scale = "linear" | "sqrt" | "log";
const cividis = Array.from({ length: 256 }, (_, step) => interpolateCividis(step / 255));
const cividisRgb = cividis.map((colour) => colour.match(/\d+/g)!.map(Number) as Rgb);
const raised: Record<Scale, (share: number) => number> = { linear: (share) => share, sqrt: Math.sqrt, log: (share) => 1 + Math.log10(share) / 4 };
export const level = (share: number, scale: Scale): number => Math.min(Math.max(raised[scale](share), 0), 1);
// Shares to write beside a scale's colours.
const places: Record<Scale, number[]> = { linear: [0, 0.25, 0.5, 0.75, 1], sqrt: [0, 0.05, 0.25, 0.5, 1], log: [0.0001, 0.001, 0.01, 0.1, 1] };
export const ticks = (scale: Scale): number[] => places[scale];
export const shareColour = (share: number, scale: Scale): string => cividis[Math.round(level(share, scale) * 255)]!;
export const shareRgb = (share: number, scale: Scale): Rgb => cividisRgb[Math.round(level(share, scale) * 255)]!;
// Ink on it: cividis grows lighter throughout; at 0.465 of its way white and black have a contrast of 4.6 each.
export const shareInk = (share: number, scale: Scale): string => (level(share, scale) > 0.465 ? "#000000" : "#ffffff");

// A number of either sign, beside the largest of its matrix: the two ends of cividis, with the page's own colour for 0.
const signedPart = (value: number, largest: number): number => (largest > 0 ? (Math.abs(value) / largest) * 0.78 : 0);
// By CSS's color-mix(), so that the page's scheme decides what 0 looks like.
export const signedColour = (value: number, largest: number): string =>
  `color-mix(in srgb, var(${value < 0 ? "--negative" : "--positive"}) ${Math.round(signedPart(value, largest) * 100)}%, var(--zero))`;
// The same for pixels, of the colours that the scheme gives.
export const signedRgb = (value: number, largest: number, { zero, negative, positive }: Record<"zero" | "negative" | "positive", Rgb>): Rgb => {
  const part = signedPart(value, largest);
  const end = value < 0 ? negative : positive;
  return [0, 1, 2].map((channel) => end[channel]! * part + zero[channel]! * (1 - part)) as Rgb;
};

// A colour of the style sheet, which writes them as #rrggbb.
export const styleRgb = (name: string): Rgb =>
  getComputedStyle(document.documentElement).getPropertyValue(name).match(/[0-9a-f]{2}/gi)!.map((byte) => parseInt(byte, 16)) as Rgb;

// What hides a pair, in the colours that the style sheet has now.
export const hatching = (): ((row: number, col: number) => Rgb) => {
  const [wash, line] = ["--wash", "--line"].map(styleRgb) as [Rgb, Rgb];
  return (row, col) => ((row + col) % 3 === 0 ? line : wash);
};

// One pixel a cell.
export const paint = (canvas: HTMLCanvasElement, rows: number, cols: number, colour: (row: number, col: number) => Rgb): void => {
  const image = new ImageData(cols, rows);
  for (let row = 0, at = 0; row < rows; ++row)
    for (let col = 0; col < cols; ++col, at += 4) {
      image.data.set(colour(row, col), at);
      image.data[at + 3] = 255;
    }
  [canvas.width, canvas.height] = [cols, rows];
  canvas.getContext("2d")!.putImageData(image, 0, 0);
};
// The same of a grid's values, of which NaN is a hidden pair.
export const paintValues = (canvas: HTMLCanvasElement, { rows, cols, data }: Grid, colour: (value: number) => Rgb): void => {
  const hatch = hatching();
  paint(canvas, rows, cols, (row, col) => {
    const value = data[row * cols + col]!;
    return Number.isNaN(value) ? hatch(row, col) : colour(value);
  });
};
