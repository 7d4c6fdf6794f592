// The colours of shapes. The hue depends on the kind of the shape. The name of the shape selects one of three shades of
// the hue, so that most neighbours with different names look different. Waiting, idle time and blocks also have a
// pattern, because some readers cannot see the colours.
import { color, distinctColors, hashOf, luminance, partsOf } from "../colors.ts";
import { isDark } from "../scheme.ts";
import type { Trace } from "./trace.ts";

export const SHADES = 3;

export interface Shades {
  fill: string[]; // three colours for each kind
  ink: string[]; // the colour of text on each fill
  dim: string[]; // the fills of shapes that a search did not find
  text: string;
  quiet: string;
  line: string;
  raised: string;
  ground: string;
  mark: string; // the colour that marks shapes that a search found
  idle: CanvasPattern;
  waiting: CanvasPattern;
  block: CanvasPattern;
}

/** Returns the shade of each name: 0, 1 or 2. */
export function shadeOfNames(names: string[]): Uint8Array {
  return Uint8Array.from(names, (name) => hashOf(name.slice(0, 200)) % SHADES);
}

export const shadeOf = (trace: Trace, shades: Uint8Array, shape: number): number =>
  trace.kind[shape]! * SHADES + (trace.name[shape]! < 0 ? 0 : shades[trace.name[shape]!]!);

/** Returns the first shade of the shape's kind. Shapes that are narrower than a pixel have this shade. */
export const firstShade = (trace: Trace, shape: number): number => trace.kind[shape]! * SHADES;

/** Returns the colour of each kind of shape, and after them the colours of the libraries of samples: those that have a
 * colour of their own, and the one of all others. */
function colorsOf({ data, stacks }: Trace): string[] {
  const libraries = stacks ? [...distinctColors(stacks.coloured), color("other")] : [];
  return [...data.kinds.map(color), ...libraries];
}

export function shadesOf(root: HTMLElement, trace: Trace, context: CanvasRenderingContext2D): Shades {
  const style = getComputedStyle(root);
  const dark = isDark();
  const read = (name: string): string => resolve(style.getPropertyValue(name), dark);
  const ground = read("--ground");
  const text = read("--text");
  const fill = colorsOf(trace).flatMap((base) => {
    return [base, mix(base, "#ffffff", dark ? 0.14 : 0.22), mix(base, "#000000", 0.14)];
  });
  return {
    fill,
    ink: fill.map((one) => (luminance(one) > 0.2 ? "#101216" : "#ffffff")),
    dim: fill.map((one) => mix(one, ground, 0.78)),
    text,
    quiet: read("--quiet"),
    line: read("--line"),
    raised: read("--raised"),
    ground,
    mark: dark ? "#ffe14d" : "#d0006f",
    idle: stripes(context, dark ? "#8b93a1" : "#7b8493", "diagonal"),
    waiting: stripes(context, dark ? "#3a0d10" : "#ffffff", "diagonal"),
    block: stripes(context, dark ? "#00000066" : "#ffffff99", "upright"),
  };
}

/** Replaces "light-dark(a, b)" in the value of a CSS property by a or b, because a canvas does not support it. */
function resolve(value: string, dark: boolean): string {
  const both = /light-dark\(\s*([^,]+),\s*([^)]+)\)/.exec(value);
  return (both ? both[dark ? 2 : 1]! : value).trim();
}

function stripes(context: CanvasRenderingContext2D, ink: string, how: "diagonal" | "upright"): CanvasPattern {
  const size = how === "diagonal" ? 6 : 4;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d")!;
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.beginPath();
  if (how === "diagonal") {
    for (const by of [-size, 0, size]) {
      pen.moveTo(by, size);
      pen.lineTo(by + size, 0);
    }
  } else {
    pen.moveTo(0.5, 0);
    pen.lineTo(0.5, size);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat")!;
}

function mix(one: string, other: string, share: number): string {
  const [a, b] = [partsOf(one), partsOf(other)];
  return `#${a
    .map((value, at) =>
      Math.round(value + (b[at]! - value) * share)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}
