// Colours of shapes: the hue says what it is, one of three shades of it tells neighbours of other names apart. What
// must not be told by colour alone has a pattern, too.
import { color, hashOf, luminance, partsOf } from "../colors.ts";
import { isDark } from "../scheme.ts";
import type { Trace } from "./trace.ts";

export const SHADES = 3;

export interface Shades {
  fill: string[]; // by kind, three each
  ink: string[]; // what is read on it
  dim: string[]; // what is not looked for
  text: string;
  quiet: string;
  line: string;
  raised: string;
  ground: string;
  mark: string; // what was found
  idle: CanvasPattern;
  waiting: CanvasPattern;
  block: CanvasPattern;
}

/** Which of the shades the shapes of each name have. */
export function shadeOfNames(names: string[]): Uint8Array {
  return Uint8Array.from(names, (name) => hashOf(name.slice(0, 200)) % SHADES);
}

export const shadeOf = (trace: Trace, shades: Uint8Array, shape: number): number =>
  trace.kind[shape]! * SHADES + (trace.name[shape]! < 0 ? 0 : shades[trace.name[shape]!]!);

/** Of what is too short for its name to tell. */
export const firstShade = (trace: Trace, shape: number): number => trace.kind[shape]! * SHADES;

export function shadesOf(root: HTMLElement, kinds: string[], context: CanvasRenderingContext2D): Shades {
  const style = getComputedStyle(root);
  const dark = isDark();
  const read = (name: string): string => resolved(style.getPropertyValue(name), dark);
  const ground = read("--ground");
  const text = read("--text");
  const fill = kinds.flatMap((kind) => {
    const base = color(kind);
    return [base, mixed(base, "#ffffff", dark ? 0.14 : 0.22), mixed(base, "#000000", 0.14)];
  });
  return {
    fill,
    ink: fill.map((one) => (luminance(one) > 0.2 ? "#101216" : "#ffffff")),
    dim: fill.map((one) => mixed(one, ground, 0.78)),
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

/** A custom property may be "light-dark(a, b)", which a canvas does not know. */
function resolved(value: string, dark: boolean): string {
  const both = /light-dark\(\s*([^,]+),\s*([^)]+)\)/.exec(value);
  return (both ? both[dark ? 2 : 1]! : value).trim();
}

function stripes(context: CanvasRenderingContext2D, ink: string, how: "diagonal" | "upright"): CanvasPattern {
  const size = how === "diagonal" ? 6 : 4;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const drawn = tile.getContext("2d")!;
  drawn.strokeStyle = ink;
  drawn.lineWidth = 1;
  drawn.beginPath();
  if (how === "diagonal") {
    for (const by of [-size, 0, size]) {
      drawn.moveTo(by, size);
      drawn.lineTo(by + size, 0);
    }
  } else {
    drawn.moveTo(0.5, 0);
    drawn.lineTo(0.5, size);
  }
  drawn.stroke();
  return context.createPattern(tile, "repeat")!;
}

function mixed(one: string, other: string, share: number): string {
  const [a, b] = [partsOf(one), partsOf(other)];
  return `#${a
    .map((value, at) =>
      Math.round(value + (b[at]! - value) * share)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}
