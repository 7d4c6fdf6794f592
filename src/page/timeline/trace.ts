// What opspan wrote of the timeline, as arrays: no object stands for a shape. Shapes come row by row, in order of time.
//
// All times are nanoseconds from the begin of the trace: those of its clock may be past what a number holds exactly.

import type { Unit } from "../format.ts";

/** Each number less the one before; or how often each of these comes, one after the other. */
type Deltas = number[] | { count: number[]; delta: number[] };

export interface Data {
  begin: string; // on the trace's clock; a text, as it may be past 2^53
  length: number;
  kinds: string[];
  forms: string[];
  tables: Table[];
  groups: { title: string; rank: number; device: number | null; host: boolean; quiet: boolean }[];
  lanes: Lane[];
  names: string[];
  hidden: { name: Deltas; count: number[] }; // how many of a name are drawn together with others
  gap: number[]; // from the end of the shape before; of the first of a row, from the begin of the trace
  length_ns: number[];
  name: number[]; // -1: none
  kind: Deltas;
  form: Deltas;
  blocks: { shape: Deltas; count: number[]; busy_ns: number[] };
  inner: number[]; // of ranges, time that is of others in them; -1: not known
  details: Record<Table, Detail[]>;
  arrows: Record<Arrow, { from: Deltas; to: Deltas }>;
  counters: Counter[];
  steps: Steps;
  merged: { under_ns: number; ranges: number; of: number };
  notes: string[];
  perfetto: string;
  files: string;
}

export type Table = "functions" | "ranges" | "calls" | "gaps" | "work";
export type Arrow = "launch" | "backward";

interface Lane {
  title: string;
  shows: string;
  group: number;
  table: Table;
  rank: number;
  pid: number | null;
  rows: number[]; // those that hold anything
  shapes: number[]; // in each of them
  ranges: number; // that the shapes stand for
}

/** A column of what else is known, for the shapes of a table that stand for themselves. */
export interface Detail {
  name: string;
  title: string;
  unit: Unit;
  at: Deltas;
  texts?: string[]; // which `at` are places in; -1: none
  missing?: number | null; // what stands for no number
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

/** The shapes from `first` on and before `until`, of which no two overlap. */
export interface Row {
  lane: number;
  row: number;
  first: number;
  until: number;
}

export interface Trace {
  data: Data;
  count: number;
  start: Float64Array;
  end: Float64Array;
  name: Int32Array;
  kind: Uint8Array;
  form: Uint8Array;
  members: Map<number, { count: number; busyNs: number }>; // of blocks, by shape
  isBlock: Uint8Array;
  rows: Row[];
  rowsOf: Row[][]; // by lane
  hidden: Map<number, number>; // by name
  arrows: Record<Arrow, Links>;
  counters: { of: Counter; at: Float64Array; highest: number }[];
}

/** Both ways: from each shape to those that its arrows go to, and back. */
export interface Links {
  to(shape: number): number[];
  from(shape: number): number[];
}

export function traceOf(data: Data): Trace {
  const count = data.gap.length;
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  const rows: Row[] = [];
  const rowsOf: Row[][] = data.lanes.map(() => []);
  let shape = 0;
  data.lanes.forEach((lane, number) => {
    lane.rows.forEach((row, at) => {
      const one = { lane: number, row, first: shape, until: shape + lane.shapes[at]! };
      for (let before = 0; shape < one.until; shape++) {
        start[shape] = before + data.gap[shape]!;
        before = end[shape] = start[shape]! + data.length_ns[shape]!;
      }
      rows.push(one);
      rowsOf[number]!.push(one);
    });
  });
  const isBlock = new Uint8Array(count);
  const members = new Map<number, { count: number; busyNs: number }>();
  summed(data.blocks.shape).forEach((block, at) => {
    isBlock[block] = 1;
    members.set(block, { count: data.blocks.count[at]!, busyNs: data.blocks.busy_ns[at]! });
  });
  return {
    data,
    count,
    start,
    end,
    name: Int32Array.from(data.name),
    kind: Uint8Array.from(summed(data.kind)),
    form: Uint8Array.from(summed(data.form)),
    members,
    isBlock,
    rows,
    rowsOf,
    hidden: new Map(summed(data.hidden.name).map((name, at) => [name, data.hidden.count[at]!])),
    arrows: { launch: links(data.arrows.launch), backward: links(data.arrows.backward) },
    counters: data.counters.map((of) => ({
      of,
      at: Float64Array.from(summed(of.at)),
      highest: of.values.reduce((most, value) => Math.max(most, value), 0),
    })),
  };
}

export function summed(deltas: Deltas): number[] {
  let sum = 0;
  if (Array.isArray(deltas)) return deltas.map((delta) => (sum += delta));
  const numbers: number[] = [];
  deltas.count.forEach((count, at) => {
    for (let one = 0; one < count; one++) numbers.push((sum += deltas.delta[at]!));
  });
  return numbers;
}

function links(pairs: { from: Deltas; to: Deltas }): Links {
  const from = summed(pairs.from);
  const to = summed(pairs.to);
  const there = Array.from(from.keys()).sort((a, b) => from[a]! - from[b]!);
  const sources = there.map((at) => from[at]!);
  return {
    to: (shape) => equal(sources, shape).map((at) => to[there[at]!]!),
    from: (shape) => equal(to, shape).map((at) => from[at]!),
  };
}

const MOST_LINKS = 200; // a graph may launch thousands

function equal(sorted: number[], wanted: number): number[] {
  const found: number[] = [];
  for (let at = firstWhere(0, sorted.length, (one) => sorted[one]! >= wanted); sorted[at] === wanted; at++) {
    if (found.push(at) >= MOST_LINKS) break;
  }
  return found;
}

/** The first number from `from` on for which it is so, and for all after it; `until` if for none. */
export function firstWhere(from: number, until: number, isSo: (at: number) => boolean): number {
  while (from < until) {
    const middle = (from + until) >>> 1;
    if (isSo(middle)) until = middle;
    else from = middle + 1;
  }
  return from;
}

export function rowOf(trace: Trace, shape: number): Row {
  return trace.rows[firstWhere(0, trace.rows.length, (at) => trace.rows[at]!.until > shape)]!;
}

export const laneOf = (trace: Trace, shape: number): Lane => trace.data.lanes[rowOf(trace, shape).lane]!;

/** The first shape of a row that ends after a time, or is at it. */
export function firstEndingAfter(trace: Trace, from: number, until: number, time: number): number {
  const { end } = trace;
  while (from < until) {
    const middle = (from + until) >>> 1;
    if (end[middle]! >= time) until = middle;
    else from = middle + 1;
  }
  return from;
}

/** The shape of a row at a time, or one that is no further away than `near`; -1: none. */
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
  return name < 0 ? "(no name)" : trace.data.names[name]!;
}
