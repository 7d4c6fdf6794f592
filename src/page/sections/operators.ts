// Shows ops. The ops with most time have bars, and each grouping of ops has a table. The reader can open the row of an
// op to see its backward ops and the stacks that called the op.
import { type TemplateResult, html, nothing, render } from "lit-html";
import { type Bar, bars } from "../bars.ts";
import { addressOf, lineOf } from "../editor.ts";
import { beginOf, formatValue, time } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Follower, Page } from "../section.ts";
import { chooser, newElement } from "../pieces.ts";
import { drawInColors } from "../scheme.ts";
import { type Columns, showTable, valuesOf } from "../table.ts";
import "./operators.css";

interface Bars {
  kind: string;
  title: string;
  total: number;
  names: string[];
  ns: number[];
  others: number; // the number of ops that have no bar of their own; `others_ns` is the sum of their times
  others_ns: number;
}
type OpTable = { by: string; title: string } & ({ why: ""; sort: string; rows: Columns } | { why: string });
interface Pairs {
  op: string[];
  backward: string[];
  count: number[];
  forward_ns: number[];
  backward_ns: number[];
  backward_device_ns: number[];
}
interface Stacks {
  why: string; // the reason why there are no stacks
  names: string[];
  frames: { name: number[]; parent: (number | null)[] };
  rows: Record<"frame" | "count" | "self_cpu_ns" | "self_device_ns" | "cpu_ns" | "device_ns", number[]> & {
    name: string[];
  };
  more: number;
}
interface Data {
  bars: Bars[];
  tables: OpTable[];
  pairs: Pairs;
  stacks: Stacks | { why: string };
}

const SHOWN_STACKS = 5;
const MOST_STACKS = 100;
const SHOWN_FRAMES = 8;
const TOTALS = /_ns$/;
const WITHOUT_LINKS = ["phase", "line", "source-op"]; // groupings whose names the timeline does not have

export function draw(root: HTMLElement, data: Data, page: Page): Follower {
  let chosen = 0;
  let isPerCall = false;
  let filter: ((text: string) => void) | undefined;

  render(
    html`
      <div class="operator-bars"></div>
      <div class="controls">
        ${chooser(
          "Group by",
          data.tables.map((one) => one.title),
          0,
          group,
        )}
        <label
          ><input
            type="checkbox"
            @change=${(event: Event) => {
              isPerCall = (event.target as HTMLInputElement).checked;
              show();
            }}
          />
          Times per call</label
        >
      </div>
      <div class="operator-rows"></div>
    `,
    root,
  );

  const above = root.querySelector<HTMLElement>(".operator-bars")!;
  drawInColors(() =>
    render(
      data.bars.map((one) => barsOf(one, page)),
      above,
    ),
  );

  function group(at: number): void {
    chosen = at;
    root.querySelector<HTMLSelectElement>(".controls select")!.selectedIndex = at;
    show();
  }

  function show(): void {
    const table = data.tables[chosen]!;
    // Use a new element, so that nothing of the previous table remains.
    const place = newElement(root.querySelector(".operator-rows")!);
    filter = undefined;
    if (!("rows" in table)) {
      render(html`<p class="empty">${table.why}</p>`, place);
      return;
    }
    const rows = isPerCall ? timesPerCall(table.rows) : table.rows;
    const names = valuesOf(rows, "name");
    const of = names ? "name" : table.by;
    filter = showTable(place, rows, {
      caption: `Ops by ${table.title}`,
      sort: table.sort,
      ...(!WITHOUT_LINKS.includes(of) && {
        link: {
          column: of,
          title: of === "module" ? "It among the modules" : "Its calls in the timeline",
          address: (row: number) => addressIn(page, of, String(valuesOf(rows, of)![row])),
        },
      }),
      ...(names && { detail: (row: number) => detail(String(names[row]), valuesOf(rows, "called")?.[row]) }),
    });
  }

  function detail(name: string, called: unknown): TemplateResult {
    return html`<div class="operator-detail">${pairsOf(data.pairs, name, page)} ${stacksOf(name, called)}</div>`;
  }

  function stacksOf(name: string, called: unknown): TemplateResult {
    const { stacks } = data;
    if (!("rows" in stacks)) return html`<p class="quiet">${stacks.why}</p>`;
    const { rows } = stacks;
    const begin = called === undefined ? undefined : (beginOf(String(called)) ?? String(called));
    const calls = rows.name
      .map((_, at) => at)
      .filter((at) => rows.name[at] === name)
      .map((at) => ({ at, frames: framesOf(stacks, rows.frame[at]!) }))
      .filter(({ frames }) => begin === undefined || frames.join(" ← ").startsWith(begin));
    if (!calls.length) return html`<p class="quiet">No call of this op has a stack in this page</p>`;
    const shown = calls.slice(0, MOST_STACKS);
    const left = calls.length - shown.length + stacks.more;
    return html`<h4>Called in ${calls.length.toLocaleString("en")} ${calls.length === 1 ? "stack" : "stacks"}</h4>
      ${stacksList(rows, shown.slice(0, SHOWN_STACKS))}
      ${
        shown.length > SHOWN_STACKS
          ? html`<details>
              <summary>${shown.length - SHOWN_STACKS} more stacks</summary>
              ${stacksList(rows, shown.slice(SHOWN_STACKS))}
            </details>`
          : nothing
      }
      ${left ? html`<p class="quiet">Stacks with less time are left out: \`opspan table --by stack\` has them</p>` : nothing}`;
  }

  const stacksList = (rows: Stacks["rows"], shown: { at: number; frames: string[] }[]): TemplateResult => html`
    <ul class="stacks">
      ${shown.map(
        ({ at, frames }) =>
          html`<li>
            <p>${callsLine(rows, at)}</p>
            ${framesList(frames.slice(0, SHOWN_FRAMES))}
            ${
              frames.length > SHOWN_FRAMES
                ? html`<details>
                    <summary>${frames.length - SHOWN_FRAMES} more around these</summary>
                    ${framesList(frames.slice(SHOWN_FRAMES))}
                  </details>`
                : nothing
            }
          </li>`,
      )}
    </ul>
  `;

  const framesList = (frames: string[]): TemplateResult => html`
    <ol class="frames mono">
      ${frames.map((frame) => html`<li>${frameLink(frame, page.head.editor)}</li>`)}
    </ol>
  `;

  show();
  return (query) => {
    const name = query.get("name");
    if (name === null) return;
    group(0);
    filter?.(name);
  };
}

function addressIn(page: Page, of: string, name: string): string | undefined {
  if (name.startsWith("(in no ") || name === "ProfilerStep*") return undefined;
  return linkTo(page, of === "module" ? "modules" : "timeline", { name });
}

const ENGINE = /^autograd::engine::evaluate_function: /;

const barsOf = (one: Bars, page: Page): TemplateResult => {
  const row = (name: string, ns: number, kind: string, address?: string): Bar => ({
    name: name.replace(ENGINE, "engine: "),
    value: ns,
    text: time(ns),
    address,
    kind,
  });
  const rows = one.names.map((name, at) => row(name, one.ns[at]!, one.kind, addressIn(page, "name", name)));
  if (one.others) rows.push(row(`${one.others.toLocaleString("en")} others`, one.others_ns, "other"));
  return html`<section>
    <h3>${one.title}: ${time(one.total)}</h3>
    ${bars(rows, one.title, { of: "the time of all ops", ns: one.total })}
  </section>`;
};

/** Divides times by the number of calls. If a table has no such number, its times become empty. Drops the totals of
 * columns, because a sum of times per call has no meaning. */
function timesPerCall(rows: Columns): Columns {
  const calls = valuesOf(rows, "count") ?? valuesOf(rows, "ranges");
  return {
    ...rows,
    columns: rows.columns.map(({ of: _, ...column }) => column),
    values: rows.values.map((values, at) =>
      TOTALS.test(rows.columns[at]!.name)
        ? values.map((value, row) =>
            typeof value === "number" && calls?.[row] ? value / (calls[row] as number) : null,
          )
        : values,
    ),
  };
}

/** Lists the backward ops of a forward op, or the forward ops of a backward op. */
function pairsOf(pairs: Pairs, name: string, page: Page): TemplateResult {
  const places = pairs.op.map((_, at) => at).filter((at) => pairs.op[at] === name || pairs.backward[at] === name);
  if (!places.length) return html``;
  const isForward = pairs.op[places[0]!] === name;
  return html`<h4>${isForward ? "Its backward" : "It is the backward of"}</h4>
    <ul>
      ${places.map((at) => {
        const other = isForward ? pairs.backward[at]! : pairs.op[at]!;
        const address = linkTo(page, "timeline", { name: other });
        return html`<li>
          ${address ? html`<a href=${address}>${other}</a>` : other}: ${formatValue(pairs.count[at], "count")} calls.
          Forward ${time(pairs.forward_ns[at]!)} on the host, backward ${time(pairs.backward_ns[at]!)} on the host and
          ${time(pairs.backward_device_ns[at]!)} on devices
        </li>`;
      })}
    </ul>`;
}

function callsLine(rows: Stacks["rows"], at: number): string {
  const device = rows.device_ns[at]
    ? `; devices: ${time(rows.self_device_ns[at]!)} itself, ${time(rows.device_ns[at]!)} in total`
    : "";
  const host = `host: ${time(rows.self_cpu_ns[at]!)} itself, ${time(rows.cpu_ns[at]!)} in total`;
  const calls = rows.count[at]!;
  return `${calls.toLocaleString("en")} ${calls === 1 ? "call" : "calls"}; ${host}${device}`;
}

/** Returns the names of the frames of a stack, the innermost first. */
function framesOf(stacks: Stacks, frame: number): string[] {
  const names: string[] = [];
  for (let at: number | null | undefined = frame; at !== null && at !== undefined; at = stacks.frames.parent[at])
    names.push(stacks.names[stacks.frames.name[at]!]!);
  return names;
}

function frameLink(frame: string, editor: string): TemplateResult | string {
  const line = lineOf(frame);
  const address = line && addressOf(line, editor);
  return address ? html`<a href=${address}>${frame}</a>` : frame;
}
