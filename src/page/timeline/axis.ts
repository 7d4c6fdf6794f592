// Draws the time axis, and the steps above it.
import { ticks } from "d3";
import { fontOf } from "../font.ts";
import { TIME_UNITS, time } from "../format.ts";
import type { Shades } from "./shades.ts";
import type { Steps } from "./trace.ts";
import type { View } from "./view.ts";

export const STEPS = 20;
export const TICKS = 26;
const APART = 110; // the usual distance between ticks, in pixels

/** Returns the times of the vertical lines, with their labels. */
export function ticksOf(view: View): { at: number; label: string }[] {
  const places = ticks(view.from, view.to, Math.max(2, Math.floor(view.width / APART)));
  const step = places.length > 1 ? places[1]! - places[0]! : view.span;
  const largest = Math.max(Math.abs(view.from), Math.abs(view.to));
  const [unit, least] = TIME_UNITS.find(([, ns]) => largest >= ns * 2 && step >= ns / 1e4) ?? TIME_UNITS.at(-1)!;
  const digits = Math.max(0, Math.ceil(-Math.log10(step / least) - 1e-9));
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return places.map((at) => ({ at, label: `${(at / least).toLocaleString("en", options)} ${unit}` }));
}

/** Returns the steps that are drawn. All of them are from one process, because the steps of all processes are
 * similar. */
export function stepsShown(steps: Steps, rank: number | undefined): number[] {
  const first = steps.rank.findIndex((one) => rank === undefined || one === rank);
  if (first < 0) return [];
  return steps.rank
    .map((_, at) => at)
    .filter((at) => steps.rank[at] === steps.rank[first] && steps.pid[at] === steps.pid[first]);
}

export function drawAxis(
  context: CanvasRenderingContext2D,
  view: View,
  shades: Shades,
  steps: Steps,
  shown: number[],
): void {
  const top = shown.length ? STEPS : 0;
  context.font = fontOf(11);
  context.textBaseline = "middle";
  context.clearRect(0, 0, view.width, top + TICKS);
  let before = -1;
  shown.forEach((step, number) => {
    const left = Math.max(view.x(steps.start[step]!), -2);
    const right = Math.min(view.x(steps.start[step]! + steps.length[step]!), view.width + 2);
    if (right < 0 || left > view.width || (right - left < 1 && Math.floor(left) === before)) return;
    before = Math.floor(left);
    context.fillStyle = number % 2 ? shades.line : shades.raised;
    context.fillRect(left, 0, Math.max(1, right - left), STEPS - 2);
    context.fillStyle = shades.line;
    context.fillRect(left, 0, 1, STEPS - 2);
    const name = steps.name[step] ?? "";
    const room = right - Math.max(0, left) - 8;
    const flag = steps.outlier[step] ? "▲ " : "";
    const labels = [flag && `${flag}${name}: slow, ${time(steps.length[step]!)}`, flag + name, flag + lastNumber(name)];
    const label = labels.find((one) => one && context.measureText(one).width <= room);
    context.fillStyle = shades.text;
    if (label) context.fillText(label, Math.max(0, left) + 4, STEPS / 2 - 0.5);
  });
  context.fillStyle = shades.line;
  context.fillRect(0, top + TICKS - 1, view.width, 1);
  for (const { at, label } of ticksOf(view)) {
    const x = Math.round(view.x(at));
    context.fillStyle = shades.line;
    context.fillRect(x, top, 1, TICKS);
    context.fillStyle = shades.quiet;
    const hasRoom = x + 4 + context.measureText(label).width < view.width;
    if (hasRoom) context.fillText(label, x + 4, top + TICKS / 2);
  }
}

const lastNumber = (name: string): string => /\d+$/.exec(name)?.[0] ?? "";

/** Draws a bar that shows which part of the trace is visible. Draws nothing if the complete trace is visible. */
export function drawWindowBar(
  context: CanvasRenderingContext2D,
  view: View,
  length: number,
  top: number,
  ink: string,
): void {
  if (view.from <= 0 && view.to >= length) return;
  const share = (at: number): number => (Math.min(length, Math.max(0, at)) / Math.max(1, length)) * view.width;
  context.fillStyle = ink;
  const left = share(view.from);
  context.fillRect(Math.min(left, view.width - 3), top, Math.max(3, share(view.to) - left), 3);
}
