// Draws samples of processors, and describes them. A sample is a point in time, so it is a tick. Samples in one column of
// pixels are added up: each library and function takes as much of the height as its share of their weight.
import { type TemplateResult, html, nothing } from "lit-html";
import { formatValue, time } from "../format.ts";
import { ROW } from "./layout.ts";
import { type Row, type Trace, firstEndingAfter, laneOf, nameOf, rowOf } from "./trace.ts";
import type { View } from "./view.ts";

const HEIGHT = ROW - 2;
const TICK = 2; // the width of a sample without neighbours, in pixels
const MOST_LISTED = 4; // libraries in a tooltip

/** Draws the samples of a row. `shadeOf` returns a sample's index into `fills`. */
export function drawSamples(
  context: CanvasRenderingContext2D,
  trace: Trace,
  row: Row,
  top: number,
  view: View,
  fills: string[],
  shadeOf: (shape: number) => number,
): void {
  const { start } = trace;
  const boxes: number[][] = fills.map(() => []); // of each shade: x, y, width and height of each of its boxes
  const sums = new Float64Array(fills.length);
  const add = (shade: number, x: number, y: number, width: number, height: number): void => {
    const of = boxes[shade]!;
    const last = of.length - 4;
    const isLonger = last >= 0 && of[last]! + of[last + 2]! === x && of[last + 1] === y && of[last + 3] === height;
    if (isLonger) of[last + 2]! += width;
    else of.push(x, y, width, height);
  };
  let shape = firstEndingAfter(trace, row.first, row.until, view.from);
  while (shape < row.until && start[shape]! <= view.to) {
    const first = shape;
    const column = Math.floor(view.x(start[shape]!));
    const past = view.time(column + 1);
    for (shape++; shape < row.until && start[shape]! < past;) shape++;
    if (shape === first + 1) {
      const isAlone = shape >= row.until || view.x(start[shape]!) >= column + TICK + 1;
      add(shadeOf(first), column, top + 1, isAlone ? TICK : 1, HEIGHT);
      continue;
    }
    const isWeighed = total(trace, first, shape) > 0;
    let sum = 0;
    sums.fill(0);
    for (let one = first; one < shape; one++) {
      const weight = isWeighed ? trace.stacks!.weightOf(one) : 1;
      sums[shadeOf(one)]! += weight;
      sum += weight;
    }
    let y = 0;
    sums.forEach((part, shade) => {
      if (!part) return;
      const height = (part / sum) * HEIGHT;
      add(shade, column, top + 1 + y, 1, height);
      y += height;
    });
  }
  boxes.forEach((of, shade) => {
    if (of.length) context.fillStyle = fills[shade]!;
    for (let at = 0; at < of.length; at += 4) context.fillRect(of[at]!, of[at + 1]!, of[at + 2]!, of[at + 3]!);
  });
}

function total(trace: Trace, first: number, until: number): number {
  let sum = 0;
  for (let shape = first; shape < until; shape++) sum += trace.stacks!.weightOf(shape);
  return sum;
}

/** Returns the text of a tooltip: about a sample, or about all samples in the same column of pixels. */
export function describeSamples(trace: Trace, shape: number, view: View): string {
  const stacks = trace.stacks!;
  const row = rowOf(trace, shape);
  const column = Math.floor(view.x(trace.start[shape]!));
  const counts = new Map<string, number>();
  let many = 0;
  let shapes = 0;
  const first = firstEndingAfter(trace, row.first, row.until, view.time(column));
  for (let one = first; one < row.until && trace.start[one]! < view.time(column + 1); one++) {
    const { count } = stacks.severalOf(one);
    const library = stacks.libraryOf(one) ?? "no known library";
    counts.set(library, (counts.get(library) ?? 0) + count);
    many += count;
    shapes++;
  }
  const library = stacks.libraryOf(shape);
  const name = `${nameOf(trace, shape).slice(0, 300)}${library ? ` in ${library}` : ""}`;
  if (shapes < 2) return many > 1 ? `${many.toLocaleString("en")} samples: ${name}` : `sample: ${name}`;
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
