import { interpolateCividis } from "d3-scale-chromatic";

// A share from 0 to 1: the same colour for the same number, in every head and every step. Its square root is what is
// coloured unless the reader asks for the share itself: among ten words shares are small, and would all be dark.
export type Scale = "sqrt" | "linear";
const cividis = Array.from({ length: 256 }, (_, step) => interpolateCividis(step / 255));
const level = (share: number, scale: Scale): number => Math.min(Math.max(scale === "sqrt" ? Math.sqrt(share) : share, 0), 1);
export const shareColour = (share: number, scale: Scale): string => cividis[Math.round(level(share, scale) * 255)]!;
// Ink on it: cividis grows lighter throughout; at 0.465 of its way white and black have a contrast of 4.6 each.
export const shareInk = (share: number, scale: Scale): string => (level(share, scale) > 0.465 ? "#000000" : "#ffffff");

// A number of either sign, beside the largest of its matrix: the two ends of cividis, with the page's own colour for 0.
// As parts of 100 for CSS's color-mix(), so that the page's scheme decides what 0 looks like.
export const signedColour = (value: number, largest: number): string => {
  const part = largest > 0 ? Math.round((Math.abs(value) / largest) * 78) : 0;
  return `color-mix(in srgb, var(${value < 0 ? "--negative" : "--positive"}) ${part}%, var(--zero))`;
};
