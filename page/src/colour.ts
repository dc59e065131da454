import type { Grid } from "./grid";

export type Rgb = [number, number, number];

// A share from 0 to 1: the same colour for the same number, in every head and every step. Its square root is what is
// coloured unless the reader asks for the share itself: among ten words shares are small, and would all look alike.
// The names and the four decades are those of the library's pictures (attend/picture.h).
export type Scale = "linear" | "sqrt" | "log";
const raised: Record<Scale, (share: number) => number> = { linear: (share) => share, sqrt: Math.sqrt, log: (share) => 1 + Math.log10(share) / 4 };
export const level = (share: number, scale: Scale): number => Math.min(Math.max(raised[scale](share), 0), 1);
// Shares to write beside a scale's colours.
const places: Record<Scale, number[]> = { linear: [0, 0.25, 0.5, 0.75, 1], sqrt: [0, 0.05, 0.25, 0.5, 1], log: [0.0001, 0.001, 0.01, 0.1, 1] };
export const ticks = (scale: Scale): number[] => places[scale];

// The library's ramp from light to dark, at equal steps to the eye (src/picture/colour.cpp says why): Oklab.
const anchors: [lightness: number, a: number, b: number][] = [
  [0.985, -0.005, 0.019], [0.929, -0.028, 0.05], [0.867, -0.056, 0.059], [0.804, -0.08, 0.049], [0.741, -0.095, 0.028], [0.678, -0.099, 0.001], [0.616, -0.094, -0.028],
  [0.554, -0.081, -0.054], [0.493, -0.061, -0.076], [0.43, -0.037, -0.091], [0.367, -0.012, -0.098], [0.302, 0.009, -0.097], [0.235, 0.019, -0.088],
];
// Björn Ottosson's matrices, of "A perceptual color space for image processing" (2020), to linear sRGB.
const linearOf = ([lightness, a, b]: [number, number, number]): [number, number, number] => {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3, s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  return linear.map((x) => Math.min(Math.max(x, 0), 1)) as [number, number, number];
};
const between = (place: number): [number, number, number] => {
  const below = Math.min(Math.floor(place * 12), 11);
  return anchors[below]!.map((from, axis) => from + (anchors[below + 1]![axis]! - from) * (place * 12 - below)) as [number, number, number];
};
interface Colour {
  rgb: Rgb;
  css: string;
  ink: string; // on it: black where both have a contrast of 4.6 or black has more
}
const colourAt = (place: number): Colour => {
  const linear = linearOf(between(place));
  const rgb = linear.map((x) => Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055))) as Rgb;
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return { rgb, css: `rgb(${rgb.join()})`, ink: luminance > 0.179 ? "#000000" : "#ffffff" };
};
const steps = 240; // of the ramp, some for each anchor
const ramp = Array.from({ length: steps + 1 }, (_, step) => colourAt(step / steps));

// The farther from the paper, the more: on a dark page the ramp begins with its dark end. What is saved is on white paper.
export type Paper = "page" | "white";
const darkPage = matchMedia("(prefers-color-scheme: dark)");
const colourOf = (share: number, scale: Scale, paper: Paper): Colour => {
  const step = Math.round(level(share, scale) * steps);
  return ramp[paper === "page" && darkPage.matches ? steps - step : step]!;
};
export const shareColour = (share: number, scale: Scale, paper: Paper = "page"): string => colourOf(share, scale, paper).css;
export const shareRgb = (share: number, scale: Scale): Rgb => colourOf(share, scale, "page").rgb;
export const shareInk = (share: number, scale: Scale, paper: Paper = "page"): string => colourOf(share, scale, paper).ink;

// A number of either sign, beside the largest of its matrix: two colours that no weight has, with the page's own for 0.
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
