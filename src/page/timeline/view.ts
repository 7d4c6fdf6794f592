// The window: the period of time that is shown, and its width in pixels.

const SHORTEST_NS = 10;
const ROOM = 0.02; // the empty room on each side of the trace, as a share of the trace's length

export class View {
  from: number;
  to: number;
  width = 1;

  constructor(private readonly length: number) {
    this.from = 0;
    this.to = 1;
    this.showAll();
  }

  get span(): number {
    return this.to - this.from;
  }
  /** The width of a nanosecond, in pixels. */
  get scale(): number {
    return this.width / this.span;
  }
  x(time: number): number {
    return (time - this.from) * this.scale;
  }
  time(x: number): number {
    return this.from + x / this.scale;
  }

  showAll(): void {
    const room = Math.max(this.length * ROOM, SHORTEST_NS);
    this.show(-room, this.length + room);
  }

  /** Shows a period of time. If the period is too short or too long, shows the nearest length that is allowed, around
   * the same middle. If the middle is outside of the trace, moves the middle to the begin or end of the trace. */
  show(from: number, to: number): void {
    const span = this.clamp(to - from);
    const middle = Math.min(this.length, Math.max(0, (from + to) / 2));
    this.from = middle - span / 2;
    this.to = middle + span / 2;
  }

  /** Multiplies the time that the window shows by a factor. The point in time at x stays at x. */
  zoom(factor: number, x: number): void {
    const time = this.time(x);
    const span = this.clamp(this.span * factor);
    const from = time - (x / this.width) * span;
    this.show(from, from + span);
  }

  private clamp(span: number): number {
    return Math.min(Math.max(this.length * 1.5, 20 * SHORTEST_NS), Math.max(SHORTEST_NS, span));
  }

  /** Moves the window by a number of pixels. */
  pan(pixels: number): void {
    const by = pixels / this.scale;
    this.show(this.from + by, this.to + by);
  }
}
