// The shapes of the timeline, as arrays of numbers, because an object for each shape would take too much memory. Shapes
// are sorted by row, then by time. A block is a shape for several ranges that are drawn together.
//
// All times are nanoseconds since the begin of the trace, because times of the trace's clock can be too large for a
// number.

import type { Unit } from "../format.ts";
import { type Deltas, type Detail, firstWhere, runningSums } from "./columns.ts";
import { type Samples, Stacks } from "./stacks.ts";

export const MARK = 1; // the form of shapes that are points in time: an index into `forms`

/** The data of the timeline, as opspan writes it into the page. */
export interface Data {
  begin: string; // the begin of the trace on its clock; a text, because it can be larger than 2^53
  length: number;
  kinds: string[];
  forms: string[];
  tables: Table[];
  groups: { title: string; rank: number; device: number | null; host: boolean; quiet: boolean }[];
  lanes: Lane[];
  names: string[];
  hidden: { name: Deltas; count: number[] }; // for frequent names, the number of their ranges that are drawn in blocks
  gap: number[]; // the time since the previous shape's end; for the first shape of a row, since the trace's begin
  length_ns: number[];
  name: number[]; // for each shape, an index into `names`, or -1 if the shape has no name
  kind: Deltas;
  form: Deltas;
  blocks: { shape: Deltas; count: number[]; busy_ns: number[] };
  inner: number[]; // for each shape of a single range, the time of the ranges inside it, or -1 if it is not known
  details: Record<Table, Detail[]>;
  arrows: Record<Arrow, { from: Deltas; to: Deltas }>;
  counters: Counter[];
  samples?: Samples; // missing if the trace has no samples of processors
  steps: Steps;
  merged: { under_ns: number; ranges: number; of: number };
  notes: string[];
  perfetto: string;
  files: string;
}

export type Table = "functions" | "ranges" | "calls" | "samples" | "gaps" | "work";
export type Arrow = "launch" | "backward";

interface Lane {
  title: string;
  shows: string;
  group: number;
  table: Table;
  rank: number;
  pid: number | null;
  rows: number[]; // the indices of the rows that have shapes
  shapes: number[]; // the number of shapes in each of these rows
  ranges: number; // the number of ranges that the shapes show
  events?: number[]; // for each row of a lane of samples, an index into the `events` of `Samples`
}

export interface Counter {
  kind: "utilisation" | "queue" | "memory" | "counter";
  title: string;
  unit: Unit;
  rank: number;
  pid: number | null;
  device: number | null;
  at: Deltas;
  values: number[];
}

export interface Steps {
  name: string[];
  rank: number[];
  pid: (number | null)[];
  start: number[];
  length: number[];
  outlier: boolean[];
}

/** A row of a lane. The shapes of a row do not overlap. `first` is its first shape, and `until` is the shape after its
 * last shape. */
export interface Row {
  lane: number;
  row: number;
  first: number;
  until: number;
}

/** The timeline, unpacked. A shape is an index into `start`, `end`, `name`, `kind`, `form` and `isBlock`. */
export interface Trace {
  data: Data;
  count: number;
  start: Float64Array;
  end: Float64Array;
  name: Int32Array;
  kind: Uint8Array;
  form: Uint8Array;
  // For each block, the number of its ranges, and the sum of their lengths.
  members: Map<number, { count: number; busyNs: number }>;
  isBlock: Uint8Array;
  names: string[];
  stacks?: Stacks; // missing if the trace has no samples of processors
  rows: Row[];
  down: Row[]; // the rows from top to bottom
  rowsOf: Row[][]; // the rows of each lane
  hidden: Map<number, number>; // for frequent names, the number of their ranges that are drawn in blocks
  hiddenSamples: Map<number, number>; // the same for samples
  arrows: Record<Arrow, Links>;
  counters: { of: Counter; at: Float64Array; highest: number }[];
}

/** The arrows of shapes. `to` returns the shapes to which the given shape's arrows point. `from` returns the shapes
 * whose arrows point to the given shape. */
export interface Links {
  to(shape: number): number[];
  from(shape: number): number[];
}

export function traceOf(data: Data): Trace {
  const { samples } = data;
  const ofSpans = data.gap.length;
  const count = ofSpans + (samples?.gap.length ?? 0);
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  const rows: Row[] = [];
  const rowsOf: Row[][] = data.lanes.map(() => []);
  let shape = 0;
  const unpack = (isOfSamples: boolean, gapOf: (shape: number) => number, lengthOf: (shape: number) => number): void =>
    data.lanes.forEach((lane, number) => {
      if ((lane.table === "samples") !== isOfSamples) return;
      lane.rows.forEach((row, at) => {
        const one = { lane: number, row, first: shape, until: shape + lane.shapes[at]! };
        for (let before = 0; shape < one.until; shape++) {
          start[shape] = before + gapOf(shape);
          before = end[shape] = start[shape]! + lengthOf(shape);
        }
        rows.push(one);
        rowsOf[number]!.push(one);
      });
    });
  unpack(
    false,
    (at) => data.gap[at]!,
    (at) => data.length_ns[at]!,
  );
  // Samples come after all other shapes, because arrows and blocks have the numbers that shapes have without samples.
  unpack(
    true,
    (at) => samples!.gap[at - ofSpans]!,
    () => 0,
  );
  const isBlock = new Uint8Array(count);
  const members = new Map<number, { count: number; busyNs: number }>();
  runningSums(data.blocks.shape).forEach((block, at) => {
    isBlock[block] = 1;
    members.set(block, { count: data.blocks.count[at]!, busyNs: data.blocks.busy_ns[at]! });
  });
  const [name, kind, form] = [new Int32Array(count), new Uint8Array(count), new Uint8Array(count)];
  name.set(data.name);
  kind.set(runningSums(data.kind));
  form.set(runningSums(data.form));
  const stacks = samples && new Stacks(samples, ofSpans);
  if (stacks) {
    form.fill(MARK, ofSpans);
    for (let one = ofSpans; one < count; one++) {
      const leaf = stacks.leafOf(one);
      name[one] = leaf < 0 || stacks.name[leaf]! < 0 ? -1 : data.names.length + stacks.name[leaf]!;
      kind[one] = data.kinds.length + stacks.colorOf(leaf);
    }
  }
  return {
    data,
    count,
    start,
    end,
    name,
    kind,
    form,
    members,
    isBlock,
    names: samples ? [...data.names, ...samples.names] : data.names,
    stacks,
    rows,
    down: [...rows].sort((a, b) => a.lane - b.lane || a.row - b.row),
    rowsOf,
    hidden: new Map(runningSums(data.hidden.name).map((name, at) => [name, data.hidden.count[at]!])),
    hiddenSamples: new Map(
      runningSums(samples?.hidden.name ?? []).map((one, at) => [data.names.length + one, samples!.hidden.count[at]!]),
    ),
    arrows: { launch: links(data.arrows.launch), backward: links(data.arrows.backward) },
    counters: data.counters.map((of) => ({
      of,
      at: Float64Array.from(runningSums(of.at)),
      highest: of.values.reduce((most, value) => Math.max(most, value), 0),
    })),
  };
}

function links(pairs: { from: Deltas; to: Deltas }): Links {
  const from = runningSums(pairs.from);
  const to = runningSums(pairs.to);
  const there = Array.from(from.keys()).sort((a, b) => from[a]! - from[b]!);
  const sources = there.map((at) => from[at]!);
  return {
    to: (shape) => placesOf(sources, shape).map((at) => to[there[at]!]!),
    from: (shape) => placesOf(to, shape).map((at) => from[at]!),
  };
}

const MOST_LINKS = 200; // the maximum number of arrows of a shape; the launch of a graph can have thousands

function placesOf(sorted: number[], wanted: number): number[] {
  const places: number[] = [];
  for (let at = firstWhere(0, sorted.length, (one) => sorted[one]! >= wanted); sorted[at] === wanted; at++) {
    if (places.push(at) >= MOST_LINKS) break;
  }
  return places;
}

export function rowOf(trace: Trace, shape: number): Row {
  return trace.rows[firstWhere(0, trace.rows.length, (at) => trace.rows[at]!.until > shape)]!;
}

export const laneOf = (trace: Trace, shape: number): Lane => trace.data.lanes[rowOf(trace, shape).lane]!;

/** Returns the first shape from `from` to `until` that ends at `time` or later. If there is none, returns `until`. */
export function firstEndingAfter(trace: Trace, from: number, until: number, time: number): number {
  const { end } = trace;
  while (from < until) {
    const middle = (from + until) >>> 1;
    if (end[middle]! >= time) until = middle;
    else from = middle + 1;
  }
  return from;
}

/** Returns the shape of a row that is nearest to `time`, or -1 if all shapes are further away than `near`. */
export function shapeAt(trace: Trace, row: Row, time: number, near: number): number {
  const shape = firstEndingAfter(trace, row.first, row.until, time - near);
  let best = -1;
  let away = near;
  for (let at = shape; at < row.until && trace.start[at]! <= time + near; at++) {
    const distance = Math.max(trace.start[at]! - time, time - trace.end[at]!, 0);
    if (distance <= away) {
      best = at;
      away = distance;
      if (!distance) break;
    }
    if (at - shape > 1000) break;
  }
  return best;
}

export function nameOf(trace: Trace, shape: number): string {
  const name = trace.name[shape]!;
  return name >= 0 ? trace.names[name]! : trace.stacks?.has(shape) ? "(unknown function)" : "(no name)";
}
