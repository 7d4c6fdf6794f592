// Goes from shape to shape, for keys.
import type { Layout } from "./layout.ts";
import { type Trace, firstEndingAfter, rowOf } from "./trace.ts";

/** Returns the next shape of the same row or the one before, or -1. */
export function neighbour(trace: Trace, shape: number, by: 1 | -1): number {
  const row = rowOf(trace, shape);
  const next = shape + by;
  return next >= row.first && next < row.until ? next : -1;
}

/** Returns a shape at the same time in the nearest row above or below that has one, or -1. */
export function shapeInNextRow(trace: Trace, layout: Layout, shape: number, by: 1 | -1): number {
  const { rows, start, end, data } = trace;
  for (let at = rows.indexOf(rowOf(trace, shape)) + by; rows[at]; at += by) {
    const row = rows[at]!;
    if (layout.rank !== undefined && data.lanes[row.lane]!.rank !== layout.rank) continue;
    const candidate = firstEndingAfter(trace, row.first, row.until, start[shape]!);
    if (candidate < row.until && start[candidate]! <= end[shape]!) return candidate;
  }
  return -1;
}

/** Returns the first shape in the window, in the topmost row from `top` down that has one, or -1. */
export function firstSeen(trace: Trace, layout: Layout, top: number, from: number, to: number): number {
  for (const strip of layout.between(top, layout.height)) {
    if (strip.what !== "lane") continue;
    for (const row of trace.rowsOf[strip.at]!) {
      const candidate = firstEndingAfter(trace, row.first, row.until, from);
      if (candidate < row.until && trace.start[candidate]! <= to) return candidate;
    }
  }
  return -1;
}
