// Computes where lanes are drawn, from top to bottom. A lane shows events of one kind, such as the calls of a thread,
// in one or more rows. The lanes of a group are below its heading. The reader can fold lanes and groups.
import { type Counter, type Row, type Trace } from "./trace.ts";

export const ROW = 16;
const GROUP = 24;
const PAD = 3; // the space above and below the rows of a lane, in pixels
const COUNTER = 40;
const MANY_ROWS = 12;

/** A strip of the timeline: the heading of a group, a lane, or a counter (values over time). */
interface Strip {
  key: string;
  title: string;
  shows: string;
  isSame: boolean; // true if the lane above has the same title
  what: "group" | "lane" | "counter";
  at: number; // the index of the group, lane or counter
  top: number;
  height: number;
  isOpen: boolean;
  canFold: boolean;
}

export class Layout {
  strips: Strip[] = [];
  height = 0;
  rank: number | undefined; // the rank that is shown; undefined if all ranks are shown
  private readonly folded = new Set<string>();
  private readonly groupOf: number[]; // the group of each counter
  private readonly ofLane = new Map<number, Strip>();

  constructor(private readonly trace: Trace) {
    trace.data.lanes.forEach((lane, at) => {
      // Fold lanes with deep stacks of functions, because they would push all other lanes out of sight.
      const isDeep = lane.rows.length > MANY_ROWS && lane.table === "functions";
      // The first row of samples shows the event that measures time, if there is one.
      const isOfEvents = lane.rows.length > 1 && lane.table === "samples";
      if (isDeep || isOfEvents || lane.shows === "the profiler") this.folded.add(`lane ${at}`);
    });
    this.groupOf = trace.counters.map(({ of }) => this.groupOfCounter(of));
    this.foldQuiet();
    this.place();
  }

  place(): void {
    const { lanes, groups } = this.trace.data;
    this.strips = [];
    this.ofLane.clear();
    let top = 0;
    const put = (strip: Omit<Strip, "top" | "key" | "isSame">): Strip => {
      const isSame = strip.what === "lane" && this.strips.at(-1)?.title === strip.title;
      const full = { ...strip, isSame, top, key: `${strip.what} ${strip.at}` };
      this.strips.push(full);
      top += strip.height;
      return full;
    };
    groups.forEach((group, number) => {
      if (this.rank !== undefined && group.rank !== this.rank) return;
      const isOpen = !this.folded.has(`group ${number}`);
      put({ what: "group", at: number, title: group.title, shows: "", height: GROUP, isOpen, canFold: true });
      if (!isOpen) return;
      // The utilisation of a device is above the lanes of the device. Other counters are below the lanes.
      const putCounters = (isFirst: boolean): void =>
        this.trace.counters.forEach(({ of }, at) => {
          if ((of.kind === "utilisation") !== isFirst || this.groupOf[at] !== number) return;
          const isOpen = !this.folded.has(`counter ${at}`);
          const height = isOpen ? COUNTER : ROW + 2 * PAD;
          put({ what: "counter", at, title: of.title, shows: "", height, isOpen, canFold: true });
        });
      putCounters(true);
      lanes.forEach((lane, at) => {
        if (lane.group !== number) return;
        const isOpen = !this.folded.has(`lane ${at}`);
        const rows = isOpen ? Math.max(...lane.rows) + 1 : 1;
        const { title, shows } = lane;
        const height = rows * ROW + 2 * PAD;
        this.ofLane.set(at, put({ what: "lane", at, title, shows, height, isOpen, canFold: lane.rows.length > 1 }));
      });
      putCounters(false);
    });
    this.height = top;
  }

  /** Returns the group of the counter's device or process. If there is none, returns the first group of its rank. */
  private groupOfCounter({ rank, device, pid }: Counter): number {
    const { groups, lanes } = this.trace.data;
    const isOf = (at: number): boolean => lanes.some((lane) => lane.group === at && lane.pid === pid);
    const ours = [...groups.keys()].filter((at) => groups[at]!.rank === rank && !groups[at]!.quiet);
    const group =
      device === null
        ? ours.find((at) => groups[at]!.host && (pid === null || isOf(at)))
        : ours.find((at) => !groups[at]!.host && groups[at]!.device === device);
    return group ?? ours[0] ?? 0;
  }

  fold(key: string, isFolded = !this.folded.has(key)): void {
    if (isFolded) this.folded.add(key);
    else this.folded.delete(key);
    this.place();
  }

  foldAll(isFolded: boolean): void {
    this.folded.clear();
    if (isFolded) {
      this.trace.data.lanes.forEach((_, at) => this.folded.add(`lane ${at}`));
      this.foldQuiet();
    }
    this.place();
  }

  private foldQuiet(): void {
    this.trace.data.groups.forEach((group, at) => group.quiet && this.folded.add(`group ${at}`));
  }

  /** Unfolds the lane and the group of a row. If only another rank is shown, shows all ranks. Returns true if strips
   * may have moved. */
  reveal(row: Row): boolean {
    const lane = this.trace.data.lanes[row.lane]!;
    const isOther = this.rank !== undefined && this.rank !== lane.rank;
    if (isOther) this.rank = undefined;
    const hasOpened = this.folded.delete(`group ${lane.group}`);
    const hasUnfolded = row.row > 0 && this.folded.delete(`lane ${row.lane}`);
    if (isOther || hasOpened || hasUnfolded) this.place();
    return isOther || hasOpened || hasUnfolded;
  }

  stripAt(y: number): Strip | undefined {
    return this.strips.find((strip) => strip.top <= y && y < strip.top + strip.height);
  }

  rowAt(y: number): Row | undefined {
    const strip = this.stripAt(y);
    if (strip?.what !== "lane") return undefined;
    const row = strip.isOpen ? Math.floor((y - strip.top - PAD) / ROW) : 0;
    return this.trace.rowsOf[strip.at]!.find((one) => one.row === row);
  }

  /** Returns the y coordinate of a row's top. If the lane is folded, all its rows have the same top. */
  topOf(row: Row): number | undefined {
    const strip = this.ofLane.get(row.lane);
    return strip && strip.top + PAD + (strip.isOpen ? row.row * ROW : 0);
  }

  /** Yields the strips that are visible between the y coordinates `top` and `bottom`. */
  *between(top: number, bottom: number): Generator<Strip> {
    for (const strip of this.strips) {
      if (strip.top + strip.height > top && strip.top < bottom) yield strip;
    }
  }
}
