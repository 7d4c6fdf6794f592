// Links to places in the page.
import type { Page } from "./section.ts";

/** The address of a place in a section, if the page has that section and there is anything in it. */
export function linked(page: Page, section: string, asked: Record<string, string> = {}): string | undefined {
  const isThere = page.head.sections.some((one) => one.name === section && !one.why);
  return isThere ? page.address(section, asked) : undefined;
}

/** A time on the trace's clock, as an address has it, from the begin of the trace; nothing of what is none. */
export function sinceBegin(time: string | null | undefined, begin: string): number | undefined {
  return time && /^-?\d{1,25}$/.test(time) ? Number(BigInt(time) - BigInt(begin)) : undefined;
}

/** A stretch of time in the timeline. `begin`: of the trace, on its clock, which counts further than numbers do. */
export function inTimeline(page: Page, begin: string, from: number, to: number, rank: number): string | undefined {
  const at = (ns: number): string => String(BigInt(begin) + BigInt(Math.round(ns)));
  return linked(page, "timeline", { from: at(from), to: at(to), rank: String(rank) });
}
