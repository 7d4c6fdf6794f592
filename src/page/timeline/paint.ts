// Draws the shapes of rows. If several shapes in a column of pixels are narrower than a pixel, at most one of them is
// drawn.
import { cutTo, fontOf } from "../font.ts";
import { ROW } from "./layout.ts";
import { SHADES, type Shades, firstShade, shadeOf } from "./shades.ts";
import { firstWhere } from "./columns.ts";
import { drawSamples } from "./sampled.ts";
import { MARK, type Row, type Trace, firstEndingAfter, nameOf } from "./trace.ts";
import type { View } from "./view.ts";

const LEAST_TEXT = 30; // shapes that are narrower than this number of pixels have no text
const LEAST_PATTERN = 4; // shapes that are narrower than this number of pixels have no pattern
const INNER = ROW - 2; // the height of a shape, in pixels
const LOW = 4; // the height of short idle times, in pixels
const WAITING_ALPHA = 0.45;
const LETTER = 6; // about the width of a letter, in pixels

/** The shapes that the search has found. */
export interface Matches {
  shapes: Int32Array; // in increasing order
}

export class Painter {
  private readonly widths: Float32Array; // the width of each name in pixels, or 0 if it was not measured yet
  private fill = "";

  constructor(
    private readonly trace: Trace,
    private readonly shadeOfName: Uint8Array,
  ) {
    this.widths = new Float32Array(trace.names.length);
  }

  begin(context: CanvasRenderingContext2D): void {
    this.fill = "";
    context.font = fontOf(11);
    context.textBaseline = "middle";
  }

  private setFill(context: CanvasRenderingContext2D, fill: string): void {
    if (fill === this.fill) return;
    context.fillStyle = fill;
    this.fill = fill;
  }

  drawRow(
    context: CanvasRenderingContext2D,
    row: Row,
    top: number,
    view: View,
    shades: Shades,
    matches?: Matches,
  ): void {
    if (this.trace.stacks?.has(row.first)) {
      const fills = matches ? shades.dim : shades.fill;
      drawSamples(context, this.trace, row, top, view, fills, matches ? undefined : shades.block, (shape) =>
        shadeOf(this.trace, this.shadeOfName, shape),
      );
      this.fill = "";
      if (!this.trace.stacks.of.merged.within_ns) this.drawLabels(context, row, top, view, shades);
    } else this.drawShapes(context, row.first, row.until, top, view, shades, matches);
    if (matches) this.drawMatches(context, row, top, view, shades, matches);
  }

  /** Writes the names of samples beside them, where there is room before the next sample. */
  private drawLabels(context: CanvasRenderingContext2D, row: Row, top: number, view: View, shades: Shades): void {
    const { start } = this.trace;
    if (view.width / LEAST_TEXT < 1) return;
    let shape = firstEndingAfter(this.trace, row.first, row.until, view.from);
    this.setFill(context, shades.quiet);
    while (shape < row.until && start[shape]! <= view.to) {
      const x = view.x(start[shape]!);
      const past = firstEndingAfter(this.trace, shape + 1, row.until, view.time(x + LEAST_TEXT));
      if (past === shape + 1) {
        const next = past < row.until ? Math.min(view.width, view.x(start[past]!)) : view.width;
        const label = this.fittingName(context, shape, next - x - 8);
        if (label) context.fillText(label, x + 5, top + ROW / 2 + 0.5);
      }
      shape = past;
    }
  }

  private drawShapes(
    context: CanvasRenderingContext2D,
    first: number,
    until: number,
    top: number,
    view: View,
    shades: Shades,
    matches?: Matches,
  ): void {
    const { start, end, form } = this.trace;
    const { from, to, scale, width } = view;
    const fills = matches ? shades.dim : shades.fill;
    // Neighbouring columns of pixels that have one colour are drawn as one rectangle.
    let runFrom = 0;
    let runTo = -1;
    let runShade = -1;
    const [idle, waiting] = ["idle", "waiting"].map((kind) => SHADES * this.trace.data.kinds.indexOf(kind));
    const flush = (): void => {
      if (runTo <= runFrom) return;
      this.setFill(context, fills[runShade]!);
      // Short idle times are drawn low. At full height, neighbouring ones would look like one long idle time.
      const height = runShade === idle ? LOW : INNER;
      context.fillRect(runFrom, top + 1 + INNER - height, runTo - runFrom, height);
      if (runShade === waiting && !matches && runTo - runFrom >= LEAST_PATTERN) {
        this.drawHatching(context, shades.waiting, runFrom, top, runTo - runFrom, WAITING_ALPHA);
      }
      runTo = -1;
    };
    let shape = firstEndingAfter(this.trace, first, until, from);
    while (shape < until && start[shape]! <= to) {
      const left = (start[shape]! - from) * scale;
      const right = (end[shape]! - from) * scale;
      if (right - left < 1) {
        const column = Math.floor(left);
        const shade = firstShade(this.trace, shape);
        if (column !== runTo || shade !== runShade) {
          flush();
          runFrom = column;
          runShade = shade;
        }
        runTo = column + 1;
        if (form[shape] === MARK) this.drawMark(context, left, top, fills[shade]!);
        // Skip all shapes that end in this column of pixels.
        const past = from + (column + 1) / scale;
        shape++;
        // Usually there are few such shapes. So look ahead by steps that double each time, until a shape ends later.
        // Then do a binary search within the last step.
        let step = 1;
        while (shape + step < until && end[shape + step]! < past) {
          shape += step;
          step *= 2;
        }
        shape = firstEndingAfter(this.trace, shape, Math.min(until, shape + step), past);
        continue;
      }
      flush();
      const shade = shadeOf(this.trace, this.shadeOfName, shape);
      this.drawWide(context, shape, Math.max(left, -4), Math.min(right, width + 4), top, shades, shade, !!matches);
      shape++;
    }
    flush();
  }

  private drawWide(
    context: CanvasRenderingContext2D,
    shape: number,
    left: number,
    right: number,
    top: number,
    shades: Shades,
    shade: number,
    isDim: boolean,
  ): void {
    const { kind, isBlock, form, data } = this.trace;
    const gap = right - left > 2.5 ? 0.5 : 0; // the space before the next shape, in pixels
    const size = right - left;
    const name = data.kinds[kind[shape]!];
    this.setFill(context, (isDim ? shades.dim : shades.fill)[shade]!);
    if (isBlock[shape] && name === "idle") {
      const height = Math.max(LOW, this.busyShare(shape) * INNER);
      context.fillRect(left, top + 1 + INNER - height, size - gap, height);
      return;
    }
    context.fillRect(left, top + 1, size - gap, INNER);
    let isPlain = true;
    if (size >= LEAST_PATTERN) {
      const pattern = isBlock[shape]
        ? shades.block
        : name === "idle"
          ? shades.idle
          : name === "waiting"
            ? shades.waiting
            : undefined;
      if (pattern && !isDim) {
        isPlain = false;
        const alpha = pattern === shades.waiting ? WAITING_ALPHA : 1;
        this.drawHatching(context, pattern, left, top, size - gap, alpha);
      }
      if (form[shape] === 2) this.drawTornEnd(context, right, top, shades.ground);
    }
    if (size < LEAST_TEXT) return;
    this.drawText(
      context,
      shape,
      Math.max(left, 0) + 3,
      size - Math.max(0, -left) - 6,
      top,
      shades,
      shade,
      isDim,
      isPlain,
    );
  }

  private drawHatching(
    context: CanvasRenderingContext2D,
    pattern: CanvasPattern,
    left: number,
    top: number,
    width: number,
    alpha: number,
  ): void {
    context.fillStyle = pattern;
    context.globalAlpha = alpha;
    context.fillRect(left, top + 1, width, INNER);
    context.globalAlpha = 1;
    this.fill = "";
  }

  /** Returns the sum of the lengths of a block's ranges, as a share of the block's length, at most 1. */
  private busyShare(shape: number): number {
    const took = this.trace.end[shape]! - this.trace.start[shape]!;
    return took > 0 ? Math.min(1, this.trace.members.get(shape)!.busyNs / took) : 1;
  }

  private drawText(
    context: CanvasRenderingContext2D,
    shape: number,
    x: number,
    room: number,
    top: number,
    shades: Shades,
    shade: number,
    isDim: boolean,
    isPlain: boolean,
  ): void {
    const members = this.trace.members.get(shape);
    const label = members ? `${members.count.toLocaleString("en")} ranges` : this.fittingName(context, shape, room);
    const width = members ? label.length * LETTER : 0;
    if (!label || width > room) return;
    if (!isPlain) {
      this.setFill(context, shades.fill[shade]!);
      context.fillRect(x - 1, top + 2, Math.min(room, context.measureText(label).width) + 2, INNER - 2);
    }
    this.setFill(context, isDim ? shades.quiet : shades.ink[shade]!);
    context.fillText(label, x, top + ROW / 2 + 0.5);
  }

  /** Returns the name of a shape, shortened so that it fits into `room` pixels. */
  private fittingName(context: CanvasRenderingContext2D, shape: number, room: number): string {
    const at = this.trace.name[shape]!;
    const name = nameOf(this.trace, shape);
    let width = at < 0 ? context.measureText(name).width : this.widths[at]!;
    if (!width) {
      // A very long name is never shown completely. So measure only its begin, and estimate the full width from it.
      const begin = name.slice(0, 400);
      width = (context.measureText(begin).width * name.length) / begin.length;
      this.widths[at] = width;
    }
    return cutTo(room, name, width);
  }

  /** Draws the triangle that marks a point in time. */
  private drawMark(context: CanvasRenderingContext2D, x: number, top: number, fill: string): void {
    this.setFill(context, fill);
    context.beginPath();
    context.moveTo(x - 4, top + 1);
    context.lineTo(x + 4, top + 1);
    context.lineTo(x, top + ROW / 2);
    context.fill();
  }

  /** Draws a ragged end, for a range that was still open when the trace ended. */
  private drawTornEnd(context: CanvasRenderingContext2D, right: number, top: number, ground: string): void {
    this.setFill(context, ground);
    context.beginPath();
    for (let y = 0; y < INNER; y += 4) {
      context.moveTo(right + 0.5, top + 1 + y);
      context.lineTo(right - 4, top + 3 + y);
      context.lineTo(right + 0.5, top + 5 + y);
    }
    context.fill();
  }

  /** Draws all shapes that a search found, even very short ones, in full colour and with a mark below them. */
  private drawMatches(
    context: CanvasRenderingContext2D,
    row: Row,
    top: number,
    view: View,
    shades: Shades,
    matches: Matches,
  ): void {
    const { start, end } = this.trace;
    const { shapes } = matches;
    const first = firstWhere(0, shapes.length, (at) => shapes[at]! >= row.first);
    const until = firstWhere(first, shapes.length, (at) => shapes[at]! >= row.until);
    let at = firstWhere(first, until, (one) => end[shapes[one]!]! >= view.from);
    while (at < until && start[shapes[at]!]! <= view.to) {
      const shape = shapes[at]!;
      const left = Math.max(view.x(start[shape]!), -4);
      const right = Math.min(view.x(end[shape]!), view.width + 4);
      const shade = shadeOf(this.trace, this.shadeOfName, shape);
      if (right - left >= 1) this.drawWide(context, shape, left, right, top, shades, shade, false);
      this.setFill(context, shades.mark);
      context.fillRect(left, top + ROW - 3, Math.max(2, right - left), 2);
      if (right - left < 2) context.fillRect(left, top + 1, 2, INNER);
      const past = view.time(left + 2);
      at = right - left >= 2 ? at + 1 : firstWhere(at + 1, until, (one) => end[shapes[one]!]! > past);
    }
  }
}
