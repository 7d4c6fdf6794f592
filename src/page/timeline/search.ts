// Finds shapes by name.
import { beginOf } from "../format.ts";
import type { Matches } from "./paint.ts";
import type { Trace } from "./trace.ts";

export class Search {
  matches: Matches | undefined;
  hidden = 0; // the number of matching ranges in blocks (shapes that show several ranges)
  private moreSamples = 0; // the number of matching samples that are drawn together with others
  text = "";
  private order: Int32Array = new Int32Array(); // the matching shapes, by time
  private at = -1;

  constructor(private readonly trace: Trace) {}

  get count(): number {
    return this.order.length;
  }
  /** The number of the match that is shown, counted from 1. Before a match is shown, it is 0. */
  get place(): number {
    return this.at + 1;
  }

  find(text: string, isExact: boolean, rank?: number): void {
    this.text = text;
    this.at = -1;
    this.hidden = 0;
    this.moreSamples = 0;
    this.order = new Int32Array();
    this.matches = undefined;
    if (!text) return;
    const { data, names, name, count, hidden, hiddenSamples, start, isBlock, stacks } = this.trace;
    const lower = text.toLowerCase();
    const isName = Uint8Array.from(names, (one) =>
      (isExact ? one === text || isShortOf(one, text) : one.toLowerCase().includes(lower)) ? 1 : 0,
    );
    const shapes: number[] = [];
    const lookAt = (first: number, until: number): void => {
      for (let shape = first; shape < until; shape++) {
        if (name[shape]! >= 0 && isName[name[shape]!] && !isBlock[shape]) shapes.push(shape);
      }
    };
    if (rank === undefined) lookAt(0, count);
    else for (const row of this.trace.rows) if (data.lanes[row.lane]!.rank === rank) lookAt(row.first, row.until);
    for (const [one, many] of hidden) if (isName[one]) this.hidden += many;
    for (const [one, many] of hiddenSamples) if (isName[one]) this.moreSamples += many;
    if (!shapes.length) return;
    for (const shape of shapes) if (stacks?.has(shape)) this.moreSamples += stacks.severalOf(shape).own - 1;
    this.matches = { shapes: Int32Array.from(shapes) };
    this.order = Int32Array.from(shapes).sort((a, b) => start[a]! - start[b]!);
  }

  /** Goes to the next match (`by` is 1) or the previous match (-1), and returns its shape. */
  step(by: 1 | -1): number | undefined {
    if (!this.count) return undefined;
    this.at = this.at < 0 && by < 0 ? this.count - 1 : (this.at + by + this.count) % this.count;
    return this.order[this.at];
  }

  /** The text beside the search field. */
  get status(): string {
    if (!this.text) return "";
    const many = this.count.toLocaleString("en");
    const found = !this.count
      ? "none found"
      : this.at < 0
        ? `${many} found`
        : `${this.place.toLocaleString("en")} of ${many}`;
    const more = this.moreSamples.toLocaleString("en");
    const matches = this.moreSamples ? `${found}; ${more} more samples are drawn together with others` : found;
    if (!this.hidden) return matches;
    return `${matches}; ${this.hidden.toLocaleString("en")} more are among ranges that are drawn together`;
  }
}

/** Returns whether `name` is the short form of the longer name `text`. opspan shortens very long names. */
function isShortOf(name: string, text: string): boolean {
  const begin = beginOf(name);
  return begin !== undefined && text.startsWith(begin);
}
