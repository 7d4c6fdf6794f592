// The panel with the details of the chosen shape, its arrows, and links to other sections.
import { type TemplateResult, html, nothing } from "lit-html";
import { formatValue, time, timeUnit } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Page } from "../section.ts";
import { ARROW_TITLES, type End, endsOf } from "./arrows.ts";
import { type Detail, firstWhere, runningSums } from "./columns.ts";
import { sampleRows, stackList } from "./sampled.ts";
import { MARK, type Table, type Trace, laneOf, nameOf, rowOf } from "./trace.ts";

const MOST_ENDS = 8;
const FORMS: Record<string, string> = {
  mark: "a point in time",
  open: "still open when the trace ended",
  backwards: "its end is recorded as earlier than its begin",
};

/** Looks up the details of shapes. Unpacks the details of a table only when the first shape of that table is chosen. */
export class Details {
  private readonly columns = new Map<Table, { of: Detail; at: Float64Array }[]>();
  private readonly places = new Map<Table, Int32Array>(); // for each table, its shapes that are not blocks

  constructor(private readonly trace: Trace) {}

  of(shape: number): { title: string; name: string; value: string }[] {
    const { table } = laneOf(this.trace, shape);
    const place = this.place(table, shape);
    if (place < 0) return [];
    let columns = this.columns.get(table);
    if (!columns) {
      columns = this.trace.data.details[table].map((of) => ({ of, at: Float64Array.from(runningSums(of.at)) }));
      this.columns.set(table, columns);
    }
    return columns
      .map(({ of, at }) => ({ title: of.title, name: of.name, value: valueOf(of, at[place]!) }))
      .filter((one) => one.value !== "");
  }

  /** Returns the time of a range without the time of the ranges inside it. Returns undefined if it is not known. */
  selfNs(shape: number): number | undefined {
    if (laneOf(this.trace, shape).table !== "ranges") return undefined;
    const place = this.place("ranges", shape);
    const inner = place < 0 ? -1 : this.trace.data.inner[place]!;
    return inner < 0 ? undefined : this.trace.end[shape]! - this.trace.start[shape]! - inner;
  }

  private place(table: Table, shape: number): number {
    let places = this.places.get(table);
    if (!places) {
      const { rows, data, isBlock } = this.trace;
      const shapes: number[] = [];
      for (const row of rows) {
        if (data.lanes[row.lane]!.table !== table) continue;
        for (let at = row.first; at < row.until; at++) if (!isBlock[at]) shapes.push(at);
      }
      places = Int32Array.from(shapes);
      this.places.set(table, places);
    }
    const at = firstWhere(0, places.length, (one) => places[one]! >= shape);
    return places[at] === shape ? at : -1;
  }
}

function valueOf(of: Detail, value: number): string {
  if (of.texts) return value < 0 ? "" : of.texts[value]!;
  if (value === of.missing) return "";
  // A number that is an identifier, such as a stream, is written without separators.
  return of.unit === "number" ? String(value) : formatValue(value, of.unit);
}

/** The functions that the buttons of the panel call. */
interface Actions {
  choose(shape: number): void;
  fit(): void;
  find(name: string): void;
}

/** Draws the panel below the lanes. */
export function panel(trace: Trace, details: Details, shape: number, page: Page, actions: Actions): TemplateResult {
  const { data, start, end, members, form } = trace;
  const lane = laneOf(trace, shape);
  const name = nameOf(trace, shape);
  const block = members.get(shape);
  const self = details.selfNs(shape);
  const took = end[shape]! - start[shape]!;
  const note = FORMS[data.forms[form[shape]!]!];
  const isSample = !!trace.stacks?.has(shape);
  const known = details.of(shape);
  const rows: [string, unknown][] = [
    [isSample ? "Taken after" : "Begins after", `${exact(start[shape]!)} of the trace`],
  ];
  if (isSample) rows.push(...sampleRows(trace, shape));
  else
    rows.push([
      block ? "From the first to the last" : "Duration",
      form[shape] === MARK ? "none: a point in time" : exact(took),
    ]);
  if (self !== undefined && form[shape] !== MARK)
    rows.push(["Self time", `${time(self)}${share(self, took, "the duration")}`]);
  if (block) {
    rows.push(["Ranges", block.count.toLocaleString("en")]);
    rows.push(["Busy", `${time(block.busyNs)}${share(block.busyNs, took, "the time from the first to the last")}`]);
    rows.push(["The longest is", name]);
  }
  rows.push(["On", `${lane.title}, ${lane.shows}, row ${rowOf(trace, shape).row + 1}`]);
  if (note && !isSample) rows.push(["Note", note]);
  if (isSample && !known.some(({ name }) => name === "op")) rows.push(["In", noRange(trace, shape)]);
  const ends = endsOf(trace, shape);
  return html`
    <h3>${block ? `${block.count.toLocaleString("en")} ranges that are drawn together` : name}</h3>
    <p class="controls">
      <button @click=${actions.fit}>Fit</button>
      ${block ? nothing : html`<button @click=${() => actions.find(name)}>All of this name</button>`}
      ${block || (isSample && name.startsWith("(")) ? nothing : links(lane.table, name, page)}
    </p>
    <dl>
      ${rows.map(([title, value]) => item(title, value))}
      ${ends.slice(0, MOST_ENDS).map((one) => item(ARROW_TITLES[one.arrow][one.isAfter ? 0 : 1], arrow(trace, shape, one, actions)))}
      ${ends.length > MOST_ENDS ? item("And", `${(ends.length - MOST_ENDS).toLocaleString("en")} more`) : nothing}
      ${known.map((one) => item(one.title, valueIn(one, page)))}
    </dl>
    ${isSample ? stackList(trace, shape) : nothing}
  `;
}

const noRange = (trace: Trace, shape: number): string =>
  trace.stacks!.severalOf(shape).count > 1 ? "no range, or different ranges" : "no range of its thread";

/** Writes a time with all its digits, down to the nanosecond. */
function exact(ns: number): string {
  const [unit, size] = timeUnit(ns);
  const digits = Math.round(Math.log10(size));
  return `${(ns / size).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

const share = (ns: number, of: number, what: string): string =>
  of > 0 ? ` (${formatValue(ns / of, "share")} of ${what})` : "";

const item = (title: string, value: unknown): TemplateResult =>
  html`<div>
    <dt>${title}</dt>
    <dd>${value}</dd>
  </div>`;

function arrow(trace: Trace, shape: number, end: End, actions: Actions): TemplateResult {
  const [one, other] = end.isAfter ? [shape, end.shape] : [end.shape, shape];
  const later = trace.start[other]! - trace.start[one]!;
  const name = trace.isBlock[end.shape] ? "one of several that are drawn together" : nameOf(trace, end.shape);
  return html`<button class="link" @click=${() => actions.choose(end.shape)}>${name}</button> ${time(Math.abs(later))}
    ${later < 0 === end.isAfter ? "earlier" : "later"}`;
}

/** For each table: the sections that also list its rows, and the text of the link to each section. */
const SECTIONS: Record<Table, [section: string, text: string][]> = {
  ranges: [["operators", "In the table of operators"]],
  work: [["kernels", "In the table of kernels"]],
  calls: [],
  functions: [],
  samples: [["host", "In the table of functions"]],
  gaps: [],
};

const links = (table: Table, name: string, page: Page): TemplateResult[] =>
  SECTIONS[table].flatMap(([section, text]) => {
    const address = linkTo(page, section, { name });
    return address ? [html`<a href=${address}>${text}</a>`] : [];
  });

// For each detail whose value is a link: the section to which it links.
const SECTION_OF: Record<string, string> = { op: "operators", module: "modules" };

function valueIn({ name, value }: { name: string; value: string }, page: Page): TemplateResult | string {
  const section = SECTION_OF[name];
  const address = section && linkTo(page, section, { name: value });
  return address ? html`<a href=${address}>${value}</a>` : value;
}
