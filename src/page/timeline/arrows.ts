// Draws the arrows of the chosen shape: from a launch to the kernel or copy that it launched, and from a forward op to
// its backward op.
import type { Layout } from "./layout.ts";
import { ROW } from "./layout.ts";
import type { Shades } from "./shades.ts";
import { type Arrow, type Trace, rowOf } from "./trace.ts";
import type { View } from "./view.ts";

/** An arrow that begins or ends at the chosen shape. `shape` is the shape at the other end of the arrow. */
export interface End {
  shape: number;
  arrow: Arrow;
  isAfter: boolean; // true if the arrow points to `shape`, false if it comes from `shape`
}

export const ARROW_TITLES: Record<Arrow, [to: string, from: string]> = {
  launch: ["Launched", "Launched by"],
  backward: ["Its backward", "Its forward"],
};
const MOST_DRAWN = 50;

export function endsOf(trace: Trace, shape: number): End[] {
  return (Object.keys(ARROW_TITLES) as Arrow[]).flatMap((arrow) => [
    ...trace.arrows[arrow].to(shape).map((other) => ({ shape: other, arrow, isAfter: true })),
    ...trace.arrows[arrow].from(shape).map((other) => ({ shape: other, arrow, isAfter: false })),
  ]);
}

export function drawArrows(
  context: CanvasRenderingContext2D,
  trace: Trace,
  layout: Layout,
  shape: number,
  scrolled: number,
  view: View,
  shades: Shades,
): void {
  for (const end of endsOf(trace, shape).slice(0, MOST_DRAWN)) {
    const [from, to] = end.isAfter ? [shape, end.shape] : [end.shape, shape];
    const tops = [from, to].map((one) => layout.topOf(rowOf(trace, one)));
    if (tops[0] === undefined || tops[1] === undefined) continue;
    const [y, until] = [tops[0] - scrolled + ROW / 2, tops[1] - scrolled + ROW / 2];
    const x = near(view, view.x(trace.start[from]!));
    const at = near(view, view.x(trace.start[to]!));
    curve(context, x, y, at, until, shades.ground, 4);
    curve(context, x, y, at, until, shades.text, 1.6, end.arrow === "backward" ? [5, 3] : []);
    context.fillStyle = shades.text;
    context.beginPath();
    context.moveTo(at, until);
    context.lineTo(at - 7, until - 4);
    context.lineTo(at - 7, until + 4);
    context.fill();
  }
}

/** Limits x to at most one window width outside of the window, because canvases draw badly at very large
 * coordinates. */
const near = (view: View, x: number): number => Math.min(2 * view.width, Math.max(-view.width, x));

function curve(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  at: number,
  until: number,
  ink: string,
  width: number,
  dashes: number[] = [],
): void {
  const bend = Math.min(80, 20 + Math.abs(at - x) / 3);
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(x, y);
  context.bezierCurveTo(x + bend, y, at - 6 - bend, until, at - 6, until);
  context.stroke();
  context.setLineDash([]);
}
