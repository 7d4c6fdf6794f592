// The functions and libraries of samples, unpacked. A sample is a shape: those from `first` on are samples.
import type { Unit } from "../format.ts";
import { type Deltas, type Detail, firstWhere, runningSums } from "./columns.ts";

export const MOST_COLORS = 8; // the libraries with most samples have a colour of their own

/** The samples of processors, in order of lane, row and time. Each is a shape without a length. */
export interface Samples {
  events: { name: string | null; unit: Unit }[];
  names: string[]; // of functions
  libraries: string[]; // the first ones have a colour of their own
  functions: { name: Deltas; library: Deltas }; // indices into `names` and `libraries`, or -1
  // For each stack: its innermost function (-1: unknown), the number of its functions in `frame`, the outermost first,
  // and the number of outer functions that are left out.
  stacks: { leaf: number[]; frames: number[]; cut: Deltas; frame: number[] };
  gap: number[]; // the time since the previous sample of the row; for the first one, since the trace's begin
  stack: number[];
  weight: Detail;
  several: { at: Deltas; count: number[]; own: number[]; length_ns: number[] }; // shapes that stand for several samples
  hidden: { name: Deltas; count: number[] }; // for frequent names, the number of samples that no shape of the name has
  merged: { within_ns: number; samples: number; of: number };
}

/** A function of a stack. It has no name if the tool did not record that part of the stack. */
interface Frame {
  name: string | undefined;
  library: string | undefined;
}

export class Stacks {
  readonly name: Int32Array; // of each function, an index into the names of samples, or -1
  private readonly weight: Float64Array; // of each sample, as in a column of details
  private readonly library: Int32Array;
  private readonly begin: Int32Array; // for each stack, the place of its outermost function
  private readonly cut: number[];
  private readonly places: number[]; // the samples that stand for several, counted from `first`

  constructor(
    readonly of: Samples,
    private readonly first: number,
  ) {
    const { functions, stacks, several, weight } = of;
    this.name = Int32Array.from(runningSums(functions.name));
    this.library = Int32Array.from(runningSums(functions.library));
    this.begin = new Int32Array(stacks.frames.length + 1);
    stacks.frames.forEach((count, at) => (this.begin[at + 1] = this.begin[at]! + count));
    this.cut = runningSums(stacks.cut);
    this.places = runningSums(several.at);
    this.weight = Float64Array.from(runningSums(weight.at));
  }

  has(shape: number): boolean {
    return shape >= this.first;
  }

  /** The libraries that have a colour of their own. */
  get coloured(): string[] {
    return this.of.libraries.slice(0, MOST_COLORS);
  }

  /** Returns the colour of a function: an index into `coloured`, or the number after the last one. */
  colorOf(frame: number): number {
    const most = Math.min(MOST_COLORS, this.of.libraries.length);
    const library = frame < 0 ? -1 : this.library[frame]!;
    return library < 0 ? most : Math.min(library, most);
  }

  /** Returns the innermost function of a sample, or -1. */
  leafOf(shape: number): number {
    return this.of.stacks.leaf[this.of.stack[shape - this.first]!]!;
  }

  libraryOf(shape: number): string | undefined {
    return this.frame(this.leafOf(shape)).library;
  }

  /** Returns the number of samples that a shape stands for. All are in one library. `own` is the number of those in the
   * function that the shape has the name of, and `lengthNs` the time from the first to the last. */
  severalOf(shape: number): { count: number; own: number; lengthNs: number } {
    const { places, of } = this;
    const at = firstWhere(0, places.length, (one) => places[one]! >= shape - this.first);
    if (places[at] !== shape - this.first) return { count: 1, own: 1, lengthNs: 0 };
    return { count: of.several.count[at]!, own: of.several.own[at]!, lengthNs: of.several.length_ns[at]! };
  }

  /** Returns the weight of a sample, for sums. Returns the number of samples if the weight is not known. */
  weightOf(shape: number): number {
    const weight = this.weight[shape - this.first]!;
    const isKnown = !this.of.weight.texts && weight !== this.of.weight.missing;
    return isKnown ? Math.max(0, weight) : this.severalOf(shape).count;
  }

  /** Returns the weight of a sample as it is stored. */
  storedWeight(shape: number): number {
    return this.weight[shape - this.first]!;
  }

  /** Returns the functions of a sample's stack, the innermost first, and the number of outer ones that are left out. */
  framesOf(shape: number): { frames: Frame[]; cut: number } {
    const stack = this.of.stack[shape - this.first]!;
    const numbers = this.of.stacks.frame.slice(this.begin[stack], this.begin[stack + 1]).reverse();
    return { frames: numbers.map((number) => this.frame(number)), cut: this.cut[stack]! };
  }

  private frame(number: number): Frame {
    if (number < 0) return { name: undefined, library: undefined };
    return { name: this.of.names[this.name[number]!], library: this.of.libraries[this.library[number]!] };
  }
}
