// Draws counters: values over time, as an area. Each value is valid until the time of the next value.
import { color } from "../colors.ts";
import { formatValue, time } from "../format.ts";
import type { Shades } from "./shades.ts";
import { firstWhere } from "./columns.ts";
import type { Trace } from "./trace.ts";
import type { View } from "./view.ts";

const COLOURS = { utilisation: "computing", queue: "calling", memory: "module", counter: "function" };

export function drawCounter(
  context: CanvasRenderingContext2D,
  trace: Trace,
  number: number,
  top: number,
  height: number,
  view: View,
  shades: Shades,
): void {
  const { of, at, highest } = trace.counters[number]!;
  const most = of.kind === "utilisation" ? 1 : highest || 1;
  const bottom = top + height - 3;
  const room = height - 8;
  const until = trace.data.length;
  context.fillStyle = color(COLOURS[of.kind]);
  let point = Math.max(0, firstWhere(0, at.length, (one) => at[one]! > view.from) - 1);
  while (point < at.length && at[point]! <= view.to) {
    const left = Math.max(0, Math.floor(view.x(at[point]!)));
    // If several values are in one column of pixels, draw the highest value.
    let value = of.values[point]!;
    const column = left + 1;
    let next = point + 1;
    while (next < at.length && view.x(at[next]!) < column) value = Math.max(value, of.values[next++]!);
    const right = Math.min(view.width, Math.floor(view.x(next < at.length ? at[next]! : until)));
    const size = (Math.max(0, value) / most) * room;
    if (value > 0) context.fillRect(left, bottom - Math.max(1, size), Math.max(1, right - left), Math.max(1, size));
    point = next;
  }
  context.fillStyle = shades.line;
  context.fillRect(0, bottom, view.width, 1);
}

/** Returns the value of a counter at a time, as text. */
export function valueAt(trace: Trace, number: number, moment: number): string {
  const { of, at } = trace.counters[number]!;
  const point = firstWhere(0, at.length, (one) => at[one]! > moment) - 1;
  if (point < 0 || moment > trace.data.length) return "no value";
  return formatValue(of.values[point], of.unit);
}

/** Returns the lowest and the highest value of a counter's scale as text, such as "0 to 4 GiB". */
export function scaleOf(trace: Trace, number: number): string {
  const { of, at, highest } = trace.counters[number]!;
  if (of.kind === "utilisation") return `0 to 100% of each ${time(trace.data.length / at.length)}`;
  return `0 to ${formatValue(highest, of.unit)}`;
}
