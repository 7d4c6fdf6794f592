// The colours of kinds of time, such as "computing", and of any other names. A name has one colour in all sections.
//
// Most colours are from Okabe and Ito's palette, which colour-blind people can tell apart. Some colours are darker or
// lighter than in the palette, for more contrast. tests/page/test_colors.py checks that colours of one picture can be
// told apart.

import { isDark } from "./scheme.ts";

const KINDS: Record<string, [light: string, dark: string]> = {
  computing: ["#0072b2", "#4aa3dc"],
  kernel: ["#0072b2", "#4aa3dc"],
  communicating: ["#d55e00", "#f08a3c"],
  overlapping: ["#a0527f", "#d88bb5"],
  copying: ["#009e73", "#3cc79c"],
  filling: ["#556b2f", "#c8dd8a"],
  calling: ["#e69f00", "#f0b93c"],
  loading: ["#7a5c00", "#f0e442"],
  data: ["#7a5c00", "#f0e442"],
  ops: ["#56b4e9", "#8fcdf2"],
  forward: ["#56b4e9", "#8fcdf2"],
  backward: ["#a63d7d", "#c878a8"],
  optimizer: ["#009e73", "#3cc79c"],
  prefill: ["#a63d7d", "#c878a8"],
  decode: ["#56b4e9", "#8fcdf2"],
  mixed: ["#009e73", "#3cc79c"],
  diffusion: ["#56b4e9", "#8fcdf2"],
  module: ["#8c6bb1", "#b296d2"],
  step: ["#7f8a99", "#a7b1bf"],
  function: ["#8a9a5b", "#b3c486"],
  transfer: ["#d55e00", "#f08a3c"],
  slower: ["#d55e00", "#f08a3c"],
  faster: ["#0072b2", "#4aa3dc"],
  waiting: ["#8a2846", "#ffc4d0"],
  idle: ["#d9dce1", "#3a404b"],
  allocated: ["#0072b2", "#4aa3dc"],
  "tensor cores": ["#009e73", "#3cc79c"],
  reserved: ["#d55e00", "#f08a3c"],
  other: ["#b4bcc7", "#6b7482"],
};
const ANY = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#b8a800"];

/** Returns the colour of a kind of time. For any other name, returns a colour from the list `ANY`. The same name always
 * gets the same colour. */
export function color(name: string): string {
  const kind = KINDS[name];
  if (kind) return kind[isDark() ? 1 : 0];
  return ANY[hashOf(name) % ANY.length]!;
}

/** Returns a colour for each name, different ones as long as there are enough. Each is the one that `color` returns, if
 * no name before has it. */
export function distinctColors(names: string[]): string[] {
  const taken = new Set<number>();
  return names.map((name) => {
    let at = hashOf(name) % ANY.length;
    while (taken.has(at) && taken.size < ANY.length) at = (at + 1) % ANY.length;
    taken.add(at);
    return ANY[at]!;
  });
}

/** Returns a hash of the name, which is the same in every run. */
export function hashOf(name: string): number {
  let hash = 7;
  for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) >>> 0;
  return hash;
}

/** Returns the values of red, green and blue, from 0 to 255, of a colour that is written as #rrggbb. */
export const partsOf = (hex: string): number[] => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Returns how bright a colour looks, from 0 to 1. The formula is the relative luminance of WCAG. */
export function luminance(hex: string): number {
  const [red, green, blue] = partsOf(hex).map((value) => {
    const share = value / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

/** Returns black or white as the colour of text on `fill`, so that the text can be read. */
export const ink = (fill: string): string => (luminance(fill) > 0.18 ? "#000000" : "#ffffff");
