// Columns of numbers, as opspan writes them into the page.
import type { Unit } from "../format.ts";

/** Numbers, stored as differences: each number minus the number before it. The differences are either one list, or two
 * lists in which the difference `delta[i]` is repeated `count[i]` times. */
export type Deltas = number[] | { count: number[]; delta: number[] };

/** A column with details of the shapes of a table. It has a value for each shape that is not a block. */
export interface Detail {
  name: string;
  title: string;
  unit: Unit;
  at: Deltas;
  texts?: string[]; // if there are texts, `at` has indices into this list, or -1 for no text
  missing?: number | null; // the number in `at` that means "no value"
}

export function runningSums(deltas: Deltas): number[] {
  let sum = 0;
  if (Array.isArray(deltas)) return deltas.map((delta) => (sum += delta));
  const numbers: number[] = [];
  deltas.count.forEach((count, at) => {
    for (let one = 0; one < count; one++) numbers.push((sum += deltas.delta[at]!));
  });
  return numbers;
}

/** Returns the first number from `from` to `until` for which `test` is true, or `until` if there is none. `test` must
 * also be true for all numbers after the first one. */
export function firstWhere(from: number, until: number, test: (at: number) => boolean): number {
  while (from < until) {
    const middle = (from + until) >>> 1;
    if (test(middle)) until = middle;
    else from = middle + 1;
  }
  return from;
}
