// Finds the next shape when the reader goes from shape to shape with keys.
import type { Layout } from "./layout.ts";
import { type Trace, firstEndingAfter, rowOf } from "./trace.ts";

/** Returns the next or the previous shape of the same row. If there is none, returns -1. */
export function neighbour(trace: Trace, shape: number, by: 1 | -1): number {
  const row = rowOf(trace, shape);
  const next = shape + by;
  return next >= row.first && next < row.until ? next : -1;
}

/** Goes down (`by` is 1) or up (-1) to the nearest row that has a shape at the same time. Returns that shape, or -1 if
 * there is none. */
export function shapeInNextRow(trace: Trace, layout: Layout, shape: number, by: 1 | -1): number {
  const { down, start, end, data } = trace;
  for (let at = down.indexOf(rowOf(trace, shape)) + by; down[at]; at += by) {
    const row = down[at]!;
    if (layout.rank !== undefined && data.lanes[row.lane]!.rank !== layout.rank) continue;
    const candidate = firstEndingAfter(trace, row.first, row.until, start[shape]!);
    if (candidate < row.until && start[candidate]! <= end[shape]!) return candidate;
  }
  return -1;
}

/** Goes down from `top` to the first row that has a shape in the window. Returns the first such shape of the row, or
 * -1. */
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
