// Which stretch of time is seen, on how many pixels.

const SHORTEST_NS = 10;
const ROOM = 0.02; // beside the whole trace

export class View {
  from: number;
  to: number;
  width = 1;

  constructor(private readonly length: number) {
    this.from = 0;
    this.to = 1;
    this.all();
  }

  get span(): number {
    return this.to - this.from;
  }
  /** Pixels of a nanosecond. */
  get scale(): number {
    return this.width / this.span;
  }
  x(time: number): number {
    return (time - this.from) * this.scale;
  }
  time(x: number): number {
    return this.from + x / this.scale;
  }

  all(): void {
    const room = Math.max(this.length * ROOM, SHORTEST_NS);
    this.show(-room, this.length + room);
  }

  /** Keeps the middle where it is asked for too short a stretch, and the trace in sight. */
  show(from: number, to: number): void {
    const span = this.possible(to - from);
    const middle = Math.min(this.length, Math.max(0, (from + to) / 2));
    this.from = middle - span / 2;
    this.to = middle + span / 2;
  }

  /** By a factor, around what is at x. */
  zoom(factor: number, x: number): void {
    const time = this.time(x);
    const span = this.possible(this.span * factor);
    const from = time - (x / this.width) * span;
    this.show(from, from + span);
  }

  private possible(span: number): number {
    return Math.min(Math.max(this.length * 1.5, 20 * SHORTEST_NS), Math.max(SHORTEST_NS, span));
  }

  pan(pixels: number): void {
    const by = pixels / this.scale;
    this.show(this.from + by, this.to + by);
  }
}
