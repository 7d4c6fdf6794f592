// Makes and reads addresses of places in the page, such as a period of time in the timeline.
import type { Page } from "./section.ts";

/** Returns the address of a place in a section, or undefined if the page lacks that section or its data. */
export function linkTo(page: Page, section: string, query: Record<string, string> = {}): string | undefined {
  const isThere = page.head.sections.some((one) => one.name === section && !one.why);
  return isThere ? page.address(section, query) : undefined;
}

/** Converts a time from an address to nanoseconds since the begin of the trace. Both `time` and `begin` (the begin of
 * the trace) are nanoseconds on the trace's clock, written as text. Returns undefined if `time` is not a number. */
export function nsSinceBegin(time: string | null | undefined, begin: string): number | undefined {
  return time && /^-?\d{1,25}$/.test(time) ? Number(BigInt(time) - BigInt(begin)) : undefined;
}

/** Returns a link to the page's timeline that shows a period: from `from` to `to`, in nanoseconds after `begin`. The
 * text `begin` is the begin of the trace, which can be too large for a number. */
export function timelineLink(page: Page, begin: string, from: number, to: number, rank: number): string | undefined {
  const at = (ns: number): string => String(BigInt(begin) + BigInt(Math.round(ns)));
  return linkTo(page, "timeline", { from: at(from), to: at(to), rank: String(rank) });
}
