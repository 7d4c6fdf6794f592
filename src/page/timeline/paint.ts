// Draws the shapes of rows: at most one for each column of pixels where they are closer than that.
import { cutTo, fontOf } from "../font.ts";
import { ROW } from "./layout.ts";
import { SHADES, type Shades, firstShade, shadeOf } from "./shades.ts";
import { type Row, type Trace, firstEndingAfter, firstWhere, nameOf } from "./trace.ts";
import type { View } from "./view.ts";

const LEAST_TEXT = 30; // pixels
const LEAST_PATTERN = 4;
const INNER = ROW - 2;
const LOW = 4;
const WAITING_ALPHA = 0.45;
const LETTER = 6; // about as wide, until it is measured

export interface Found {
  shapes: Int32Array; // in order of shapes
}

export class Painter {
  private readonly widths: Float32Array; // of names, once they were measured
  private fill = "";

  constructor(
    private readonly trace: Trace,
    private readonly shadeOfName: Uint8Array,
  ) {
    this.widths = new Float32Array(trace.data.names.length);
  }

  begin(context: CanvasRenderingContext2D): void {
    this.fill = "";
    context.font = fontOf(11);
    context.textBaseline = "middle";
  }

  private use(context: CanvasRenderingContext2D, fill: string): void {
    if (fill === this.fill) return;
    context.fillStyle = fill;
    this.fill = fill;
  }

  row(context: CanvasRenderingContext2D, row: Row, top: number, view: View, shades: Shades, found?: Found): void {
    this.shapes(context, row.first, row.until, top, view, shades, found);
    if (found) this.found(context, row, top, view, shades, found);
  }

  private shapes(
    context: CanvasRenderingContext2D,
    first: number,
    until: number,
    top: number,
    view: View,
    shades: Shades,
    found?: Found,
  ): void {
    const { start, end, form } = this.trace;
    const { from, to, scale, width } = view;
    const fills = found ? shades.dim : shades.fill;
    // Columns of one colour next to each other are one rectangle.
    let runFrom = 0;
    let runTo = -1;
    let runShade = -1;
    const [idle, waiting] = ["idle", "waiting"].map((kind) => SHADES * this.trace.data.kinds.indexOf(kind));
    const flush = (): void => {
      if (runTo <= runFrom) return;
      this.use(context, fills[runShade]!);
      // Moments of idleness must not look as if nothing had run all the time.
      const height = runShade === idle ? LOW : INNER;
      context.fillRect(runFrom, top + 1 + INNER - height, runTo - runFrom, height);
      if (runShade === waiting && !found && runTo - runFrom >= LEAST_PATTERN) {
        this.hatch(context, shades.waiting, runFrom, top, runTo - runFrom, WAITING_ALPHA);
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
        if (form[shape] === 1) this.mark(context, left, top, fills[shade]!);
        // To the first shape that is seen right of this column.
        const past = from + (column + 1) / scale;
        shape++;
        // It is mostly near.
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
      this.wide(context, shape, Math.max(left, -4), Math.min(right, width + 4), top, shades, shade, !!found);
      shape++;
    }
    flush();
  }

  private wide(
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
    const seen = right - left > 2.5 ? 0.5 : 0; // a gap between neighbours
    const size = right - left;
    const name = data.kinds[kind[shape]!];
    this.use(context, (isDim ? shades.dim : shades.fill)[shade]!);
    if (isBlock[shape] && name === "idle") {
      const height = Math.max(LOW, this.share(shape) * INNER);
      context.fillRect(left, top + 1 + INNER - height, size - seen, height);
      return;
    }
    context.fillRect(left, top + 1, size - seen, INNER);
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
        this.hatch(context, pattern, left, top, size - seen, alpha);
      }
      if (form[shape] === 2) this.torn(context, right, top, shades.ground);
    }
    if (size < LEAST_TEXT) return;
    this.text(context, shape, Math.max(left, 0) + 3, size - Math.max(0, -left) - 6, top, shades, shade, isDim, isPlain);
  }

  private hatch(
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

  /** Of the time of a block, that in which any of its ranges was on. */
  private share(shape: number): number {
    const took = this.trace.end[shape]! - this.trace.start[shape]!;
    return took > 0 ? Math.min(1, this.trace.members.get(shape)!.busyNs / took) : 1;
  }

  private text(
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
    const label = members ? `${members.count.toLocaleString("en")} ranges` : this.fitting(context, shape, room);
    const width = members ? label.length * LETTER : 0;
    if (!label || width > room) return;
    if (!isPlain) {
      this.use(context, shades.fill[shade]!);
      context.fillRect(x - 1, top + 2, Math.min(room, context.measureText(label).width) + 2, INNER - 2);
    }
    this.use(context, isDim ? shades.quiet : shades.ink[shade]!);
    context.fillText(label, x, top + ROW / 2 + 0.5);
  }

  /** The name, or as much of it as there is room for. */
  private fitting(context: CanvasRenderingContext2D, shape: number, room: number): string {
    const at = this.trace.name[shape]!;
    const name = nameOf(this.trace, shape);
    let width = at < 0 ? context.measureText(name).width : this.widths[at]!;
    if (!width) {
      // Of a very long name only its begin is ever seen.
      const begin = name.slice(0, 400);
      width = (context.measureText(begin).width * name.length) / begin.length;
      this.widths[at] = width;
    }
    return cutTo(room, name, width);
  }

  /** A point in time. */
  private mark(context: CanvasRenderingContext2D, x: number, top: number, fill: string): void {
    this.use(context, fill);
    context.beginPath();
    context.moveTo(x - 4, top + 1);
    context.lineTo(x + 4, top + 1);
    context.lineTo(x, top + ROW / 2);
    context.fill();
  }

  /** It was open when the trace ended: its end is ragged. */
  private torn(context: CanvasRenderingContext2D, right: number, top: number, ground: string): void {
    this.use(context, ground);
    context.beginPath();
    for (let y = 0; y < INNER; y += 4) {
      context.moveTo(right + 0.5, top + 1 + y);
      context.lineTo(right - 4, top + 3 + y);
      context.lineTo(right + 0.5, top + 5 + y);
    }
    context.fill();
  }

  /** What is looked for, in full colour and marked below, however short. */
  private found(
    context: CanvasRenderingContext2D,
    row: Row,
    top: number,
    view: View,
    shades: Shades,
    found: Found,
  ): void {
    const { start, end } = this.trace;
    const { shapes } = found;
    const first = firstWhere(0, shapes.length, (at) => shapes[at]! >= row.first);
    const until = firstWhere(first, shapes.length, (at) => shapes[at]! >= row.until);
    let at = firstWhere(first, until, (one) => end[shapes[one]!]! >= view.from);
    while (at < until && start[shapes[at]!]! <= view.to) {
      const shape = shapes[at]!;
      const left = Math.max(view.x(start[shape]!), -4);
      const right = Math.min(view.x(end[shape]!), view.width + 4);
      const shade = shadeOf(this.trace, this.shadeOfName, shape);
      if (right - left >= 1) this.wide(context, shape, left, right, top, shades, shade, false);
      this.use(context, shades.mark);
      context.fillRect(left, top + ROW - 3, Math.max(2, right - left), 2);
      if (right - left < 2) context.fillRect(left, top + 1, 2, INNER);
      const past = view.time(left + 2);
      at = right - left >= 2 ? at + 1 : firstWhere(at + 1, until, (one) => end[shapes[one]!]! > past);
    }
  }
}
