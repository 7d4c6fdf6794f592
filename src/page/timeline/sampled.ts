// Draws samples of processors, and describes them. A sample is a point in time, so it is a tick. Samples in one column of
// pixels are added up: each library and function takes as much of the height as its share of their weight. So are the
// samples of a stretch of time, if the page has no room for all samples; their box is from the first to the last of them.
import { type TemplateResult, html, nothing } from "lit-html";
import { formatValue, time } from "../format.ts";
import { ROW } from "./layout.ts";
import { type Row, type Trace, firstEndingAfter, laneOf, nameOf, rowOf } from "./trace.ts";
import type { View } from "./view.ts";

const HEIGHT = ROW - 2;
const TICK = 2; // the width of a sample without neighbours, in pixels
const LEAST_PATTERN = 4; // stretches that are narrower than this number of pixels have no pattern
const MOST_LISTED = 4; // libraries in a tooltip

/** Samples that are drawn in one box: shapes of a row. */
interface Cell {
  first: number;
  until: number;
  from: number; // the time of the first sample
  to: number; // the time of the last sample
}

/** Returns the cell that begins with a shape. Its samples are in one column of pixels or, if the page has no room for
 * all samples and so a shape stands for those of a stretch of time, in one stretch that is wider than that. */
function cellOf(trace: Trace, row: Row, first: number, view: View): Cell {
  const { start, stacks } = trace;
  const within = stacks!.of.merged.within_ns;
  const isStretch = within * view.scale > 1;
  const past = isStretch
    ? (Math.floor(start[first]! / within) + 1) * within
    : view.time(Math.floor(view.x(start[first]!)) + 1);
  let until = first;
  let to = start[first]!;
  do {
    if (isStretch) to = Math.max(to, start[until]! + stacks!.severalOf(until).lengthNs);
    until++;
  } while (until < row.until && start[until]! < past);
  return { first, until, from: start[first]!, to };
}

/** Returns the first shape of a row that is in a cell that `time` may be in. */
function firstAt(trace: Trace, row: Row, time: number, view: View): number {
  const within = trace.stacks!.of.merged.within_ns;
  const begin = within * view.scale > 1 ? Math.floor(time / within) * within : view.time(Math.floor(view.x(time)));
  return firstEndingAfter(trace, row.first, row.until, begin);
}

/** Draws the samples of a row. `shadeOf` returns a sample's index into `fills`. `pattern` is drawn over samples of a
 * stretch. */
export function drawSamples(
  context: CanvasRenderingContext2D,
  trace: Trace,
  row: Row,
  top: number,
  view: View,
  fills: string[],
  pattern: CanvasPattern | undefined,
  shadeOf: (shape: number) => number,
): void {
  const { start } = trace;
  const boxes: number[][] = fills.map(() => []); // of each shade: x, y, width and height of each of its boxes
  const hatched: number[] = []; // x and width
  const sums = new Float64Array(fills.length);
  const add = (shade: number, x: number, y: number, width: number, height: number): void => {
    const of = boxes[shade]!;
    const last = of.length - 4;
    const isLonger = last >= 0 && of[last]! + of[last + 2]! === x && of[last + 1] === y && of[last + 3] === height;
    if (isLonger) of[last + 2]! += width;
    else of.push(x, y, width, height);
  };
  let shape = firstAt(trace, row, view.from, view);
  while (shape < row.until && start[shape]! <= view.to) {
    const cell = cellOf(trace, row, shape, view);
    const left = Math.max(-4, Math.floor(view.x(cell.from)));
    const right = Math.min(view.width + 4, Math.floor(view.x(cell.to)));
    shape = cell.until;
    const room = shape < row.until ? Math.floor(view.x(start[shape]!)) - left : TICK;
    const width = Math.max(1, right - left, Math.min(TICK, room - 1));
    if (right - left >= LEAST_PATTERN) hatched.push(left, width);
    const isWeighed = total(trace, cell) > 0;
    let sum = 0;
    sums.fill(0);
    for (let one = cell.first; one < shape; one++) {
      const weight = isWeighed ? trace.stacks!.weightOf(one) : 1;
      sums[shadeOf(one)]! += weight;
      sum += weight;
    }
    let y = 0;
    sums.forEach((part, shade) => {
      if (!part) return;
      const height = (part / sum) * HEIGHT;
      add(shade, left, top + 1 + y, width, height);
      y += height;
    });
  }
  boxes.forEach((of, shade) => {
    if (of.length) context.fillStyle = fills[shade]!;
    for (let at = 0; at < of.length; at += 4) context.fillRect(of[at]!, of[at + 1]!, of[at + 2]!, of[at + 3]!);
  });
  if (!pattern) return;
  context.fillStyle = pattern;
  for (let at = 0; at < hatched.length; at += 2) context.fillRect(hatched[at]!, top + 1, hatched[at + 1]!, HEIGHT);
}

/** Returns the shape with most samples of the cell at a time, or -1. */
export function sampleAt(trace: Trace, row: Row, time: number, view: View): number {
  const first = firstAt(trace, row, time, view);
  if (first >= row.until) return -1;
  const { from, to, until } = cellOf(trace, row, first, view);
  if (time < from || time > to) return -1;
  const count = (shape: number): number => trace.stacks!.severalOf(shape).count;
  let best = first;
  for (let shape = first + 1; shape < until; shape++) if (count(shape) > count(best)) best = shape;
  return best;
}

function total(trace: Trace, { first, until }: Cell): number {
  let sum = 0;
  for (let shape = first; shape < until; shape++) sum += trace.stacks!.weightOf(shape);
  return sum;
}

/** Returns the text of a tooltip: about a sample, or about all samples of its cell. */
export function describeSamples(trace: Trace, shape: number, view: View): string {
  const stacks = trace.stacks!;
  const row = rowOf(trace, shape);
  const cell = cellOf(trace, row, firstAt(trace, row, trace.start[shape]!, view), view);
  const counts = new Map<string, number>();
  let many = 0;
  for (let one = cell.first; one < cell.until; one++) {
    const { count } = stacks.severalOf(one);
    const library = stacks.libraryOf(one) ?? "no known library";
    counts.set(library, (counts.get(library) ?? 0) + count);
    many += count;
  }
  const library = stacks.libraryOf(shape);
  const name = `${nameOf(trace, shape).slice(0, 300)}${library ? ` in ${library}` : ""}`;
  if (many < 2) return `sample: ${name}`;
  const parts = [...counts].sort((a, b) => b[1] - a[1]);
  const listed = parts.slice(0, MOST_LISTED).map(([of, count]) => `${count.toLocaleString("en")} in ${of}`);
  const rest = parts.slice(MOST_LISTED).reduce((sum, [, count]) => sum + count, 0);
  return `${many.toLocaleString("en")} samples: ${listed.join(", ")}${rest ? `, ${rest.toLocaleString("en")} elsewhere` : ""}`;
}

/** Returns the rows of the panel that only samples have. */
export function sampleRows(trace: Trace, shape: number): [string, unknown][] {
  const stacks = trace.stacks!;
  const { count, own } = stacks.severalOf(shape);
  const { weight, events, merged } = stacks.of;
  const event = events[laneOf(trace, shape).events![rowOf(trace, shape).row]!]!;
  const stored = stacks.storedWeight(shape);
  const rows: [string, unknown][] = [];
  if (count > 1) {
    const [all, ours] = [count, own].map((number) => number.toLocaleString("en"));
    rows.push(["Stands for", `${all} samples within ${time(merged.within_ns)}, ${ours} of them in this function`]);
  }
  rows.push(["Library", stacks.libraryOf(shape) ?? "unknown"]);
  if (event.name !== null) rows.push(["Event", event.name]);
  if (weight.texts ? stored >= 0 : stored !== weight.missing)
    rows.push(["Weight", weight.texts ? weight.texts[stored] : formatValue(stored, event.unit)]);
  return rows;
}

/** Draws the stack of a sample. */
export function stackList(trace: Trace, shape: number): TemplateResult {
  const stacks = trace.stacks!;
  const { frames, cut } = stacks.framesOf(shape);
  const of = stacks.severalOf(shape).count > 1 ? "The stack of one of them" : "Stack";
  return html`<h4>${of}, the innermost function first</h4>
    <ol class="stack">
      ${frames.map(({ name, library }) =>
        name === undefined
          ? html`<li class="quiet">The tool did not record these functions</li>`
          : html`<li>${name}${library === undefined ? nothing : html` <span class="quiet">${library}</span>`}</li>`,
      )}
      ${cut ? html`<li class="quiet">${cut.toLocaleString("en")} outer functions are not in this page</li>` : nothing}
    </ol>`;
}
