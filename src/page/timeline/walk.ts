// From shape to shape by keys.
import type { Layout } from "./layout.ts";
import { type Trace, firstEndingAfter, rowOf } from "./trace.ts";

/** The next shape of its row, or the one before; -1: there is none. */
export function beside(trace: Trace, shape: number, by: 1 | -1): number {
  const row = rowOf(trace, shape);
  const next = shape + by;
  return next >= row.first && next < row.until ? next : -1;
}

/** The nearest shape of a row above or below that is there at the same time. */
export function above(trace: Trace, layout: Layout, shape: number, by: 1 | -1): number {
  const { rows, start, end, data } = trace;
  for (let at = rows.indexOf(rowOf(trace, shape)) + by; rows[at]; at += by) {
    const row = rows[at]!;
    if (layout.rank !== undefined && data.lanes[row.lane]!.rank !== layout.rank) continue;
    const found = firstEndingAfter(trace, row.first, row.until, start[shape]!);
    if (found < row.until && start[found]! <= end[shape]!) return found;
  }
  return -1;
}

/** The first shape that is seen from a time on, in the rows from a height on. */
export function firstSeen(trace: Trace, layout: Layout, top: number, from: number, to: number): number {
  for (const strip of layout.between(top, layout.height)) {
    if (strip.what !== "lane") continue;
    for (const row of trace.rowsOf[strip.at]!) {
      const found = firstEndingAfter(trace, row.first, row.until, from);
      if (found < row.until && trace.start[found]! <= to) return found;
    }
  }
  return -1;
}
