// The two canvases of the timeline, for lanes and for the axis. Sets their sizes, and decides what is drawn when and
// where.
import { fontOf } from "../font.ts";
import { formatValue, time } from "../format.ts";
import { onScheme } from "../scheme.ts";
import { drawArrows } from "./arrows.ts";
import { STEPS, TICKS, drawAxis, drawWindowBar, stepsShown, ticksOf } from "./axis.ts";
import { drawCounter, valueAt } from "./counters.ts";
import { type Layout, ROW } from "./layout.ts";
import { type Matches, Painter } from "./paint.ts";
import { type Shades, shadeOfNames, shadesOf } from "./shades.ts";
import { describeSamples, sampleAt } from "./sampled.ts";
import { MARK, type Trace, nameOf, rowOf, shapeAt } from "./trace.ts";
import type { View } from "./view.ts";
import { PAPER } from "../width.ts";

const PRINTED = { width: PAPER, height: 900 };
const NEAR = 3; // a pointer that is at most this number of pixels away from a shape counts as on the shape

export class Stage {
  chosen = -1;
  matches: Matches | undefined;
  stretch: [from: number, to: number] | undefined; // the x values between which the reader measures the time
  private readonly painter: Painter;
  private readonly context: CanvasRenderingContext2D;
  private readonly axisContext: CanvasRenderingContext2D;
  private shades: Shades;
  private height = 1;
  private steps: number[] = [];
  private isRequested = false;

  constructor(
    private readonly trace: Trace,
    private readonly layout: Layout,
    private readonly view: View,
    private readonly canvas: HTMLCanvasElement,
    private readonly axis: HTMLCanvasElement,
    private readonly scroller: HTMLElement,
  ) {
    this.context = canvas.getContext("2d")!;
    this.axisContext = axis.getContext("2d")!;
    this.painter = new Painter(trace, shadeOfNames(trace.names));
    this.shades = shadesOf(canvas, trace, this.context);
    onScheme(() => {
      this.shades = shadesOf(canvas, trace, this.context);
      this.requestDraw();
    });
    scroller.addEventListener("scroll", () => this.requestDraw());
    new ResizeObserver(() => this.resize()).observe(scroller);
    addEventListener("beforeprint", () => this.resize(PRINTED));
    this.resize();
  }

  /** Gives the canvases the size of `scroller`. If `scroller` is not visible, the canvases get the size `hidden`. If
   * `hidden` is missing as well, they keep their size. */
  resize(hidden?: { width: number; height: number }): void {
    const isHidden = !this.scroller.clientWidth;
    if (isHidden && !hidden) return;
    this.view.width = isHidden ? hidden!.width : Math.max(10, this.scroller.clientWidth - this.canvas.offsetLeft);
    this.height = isHidden ? Math.min(hidden!.height, this.layout.height) : Math.max(1, this.scroller.clientHeight);
    const { width } = this.view;
    this.steps = stepsShown(this.trace.data.steps, this.layout.rank);
    resizeCanvas(this.canvas, this.context, width, this.height);
    resizeCanvas(this.axis, this.axisContext, width, this.axisHeight);
    this.draw();
  }

  get axisHeight(): number {
    return TICKS + (this.steps.length ? STEPS : 0);
  }

  /** Draws with the next frame of the browser. Several calls before this frame cause only one drawing. */
  requestDraw(): void {
    if (this.isRequested) return;
    this.isRequested = true;
    requestAnimationFrame(() => {
      this.isRequested = false;
      this.draw();
    });
  }

  draw(): void {
    const { context, view, layout, shades, trace } = this;
    const top = this.scroller.scrollTop;
    context.fillStyle = shades.ground;
    context.fillRect(0, 0, view.width, this.height);
    context.fillStyle = shades.line;
    context.globalAlpha = 0.5;
    for (const tick of ticksOf(view)) context.fillRect(Math.round(view.x(tick.at)), 0, 1, this.height);
    context.globalAlpha = 1;
    for (const strip of layout.between(top, top + this.height)) {
      const y = strip.top - top;
      if (strip.what === "group") {
        context.fillStyle = shades.raised;
        context.fillRect(0, y, view.width, strip.height);
      } else if (strip.what === "counter") {
        drawCounter(context, trace, strip.at, y, strip.height, view, shades);
      } else {
        this.painter.begin(context);
        for (const row of trace.rowsOf[strip.at]!) {
          const at = layout.topOf(row)! - top;
          if ((!strip.isOpen && row.row > 0) || at + ROW < 0 || at > this.height) continue;
          this.painter.drawRow(context, row, at, view, shades, this.matches);
        }
      }
      context.fillStyle = shades.line;
      context.fillRect(0, y + strip.height - 1, view.width, 1);
    }
    this.drawOutside(top);
    if (this.chosen >= 0) this.drawChosen(top);
    if (this.stretch) this.drawStretch();
    drawAxis(this.axisContext, view, shades, trace.data.steps, this.steps);
    drawWindowBar(this.axisContext, view, trace.data.length, this.axisHeight - 4, shades.quiet);
  }

  /** Shades the time before the begin and after the end of the trace. */
  private drawOutside(top: number): void {
    const { context, view, shades } = this;
    context.fillStyle = shades.raised;
    context.globalAlpha = 0.7;
    const height = Math.min(this.height, this.layout.height - top);
    const [begin, end] = [view.x(0), view.x(this.trace.data.length)];
    if (begin > 0) context.fillRect(0, 0, begin - 1, height);
    if (end < view.width) context.fillRect(end + 1, 0, view.width - end, height);
    context.globalAlpha = 1;
  }

  private drawChosen(top: number): void {
    const { context, view, shades, trace, layout, chosen } = this;
    drawArrows(context, trace, layout, chosen, top, view, shades);
    const y = layout.topOf(rowOf(trace, chosen));
    if (y === undefined) return;
    const left = Math.max(-4, view.x(trace.start[chosen]!));
    const right = Math.min(view.width + 4, view.x(trace.end[chosen]!));
    context.lineWidth = 2;
    context.strokeStyle = shades.text;
    context.strokeRect(left - 1, y - top, Math.max(3, right - left + 1), ROW);
  }

  private drawStretch(): void {
    const { context, view, shades } = this;
    const [from, to] = this.stretch!;
    context.fillStyle = shades.text;
    context.globalAlpha = 0.15;
    context.fillRect(Math.min(from, to), 0, Math.abs(to - from), this.height);
    context.globalAlpha = 1;
    const label = time(Math.abs(view.time(to) - view.time(from)));
    context.font = fontOf(12);
    const width = context.measureText(label).width;
    const x = Math.max(0, Math.min(view.width - width - 8, (from + to - width) / 2 - 4));
    context.fillStyle = shades.raised;
    context.fillRect(x, 8, width + 8, 20);
    context.fillStyle = shades.text;
    context.fillText(label, x + 4, 18);
  }

  /** Returns the shape at a point of the canvas, or -1. */
  shapeAt(x: number, y: number): number {
    const row = this.layout.rowAt(y + this.scroller.scrollTop);
    if (!row) return -1;
    const near = shapeAt(this.trace, row, this.view.time(x), NEAR / this.view.scale);
    if (near >= 0 || !this.trace.stacks?.has(row.first)) return near;
    return sampleAt(this.trace, row, this.view.time(x), this.view);
  }

  /** Returns the text of the tooltip for a point of the canvas, or "". */
  describe(x: number, y: number): string {
    const strip = this.layout.stripAt(y + this.scroller.scrollTop);
    if (strip?.what === "counter") return `${strip.title}: ${valueAt(this.trace, strip.at, this.view.time(x))}`;
    const shape = this.shapeAt(x, y);
    if (shape < 0) return "";
    if (this.trace.stacks?.has(shape)) return describeSamples(this.trace, shape, this.view);
    const { members, form, start, end } = this.trace;
    const took = time(end[shape]! - start[shape]!);
    const block = members.get(shape);
    if (block) return `${formatValue(block.count, "count")} ranges in ${took}, busy for ${time(block.busyNs)}`;
    const name = nameOf(this.trace, shape).slice(0, 300);
    return form[shape] === MARK ? name : `${name}: ${took}`;
  }

  /** Moves the view so that a shape is visible, and zooms in if the shape would be too small. */
  bringIntoView(shape: number): void {
    const { trace, view, layout, scroller } = this;
    const row = rowOf(trace, shape);
    const y = layout.topOf(row) ?? 0;
    if (y < scroller.scrollTop || y + ROW > scroller.scrollTop + this.height) {
      scroller.scrollTop = Math.max(0, y - this.height / 3);
    }
    const [start, end] = [trace.start[shape]!, trace.end[shape]!];
    const middle = (start + end) / 2;
    const isSeen = view.x(end) > 0 && view.x(start) < view.width;
    const isLarge = (end - start) * view.scale >= 4 || trace.form[shape] === MARK;
    const span = isLarge ? view.span : Math.max(20, end - start) * 8;
    if (!isSeen || !isLarge) view.show(middle - span / 2, middle + span / 2);
    this.requestDraw();
  }

  /** Zooms to a shape, so that it fills the window. */
  fit(shape: number): void {
    const [start, end] = [this.trace.start[shape]!, this.trace.end[shape]!];
    const room = Math.max(10, (end - start) * 0.05);
    this.view.show(start - room, end + room);
    this.requestDraw();
  }
}

function resizeCanvas(
  canvas: HTMLCanvasElement,
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}
