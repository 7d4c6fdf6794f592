// Shows where the time of each rank went, how long ranks waited for other ranks, and the collectives of all ranks.
import { type TemplateResult, html, nothing, render } from "lit-html";
import { color } from "../colors.ts";
import { time } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Page } from "../section.ts";
import { chooser, notes } from "../pieces.ts";
import { legend, Plot, showPlot } from "../plots.ts";
import { type Columns, showTable } from "../table.ts";

interface Kind {
  name: string;
  title: string;
}

/** The times of each device or, if there are no devices, of each process. Both are called places. A place has a row for
 * the complete run and a row for each step. `place[row]` is an index into `places`. `step[row]` is 0 in the row of the
 * complete run, and i + 1 in the row of the step `steps[i]`. */
interface Load {
  places: string[];
  steps: string[];
  place: number[];
  step: number[];
  kinds: (Kind & { ns: number[] })[];
  has_device: boolean;
  notes: string[];
}

/** Rows that link to the timeline. The link of a row opens the timeline of the row's rank, from the time `from` to the
 * time `to`. Times are texts, because they can be larger than 2^53. */
interface TimelineRows {
  rows: Columns;
  from: (string | null)[];
  to: (string | null)[];
  rank: number[];
}

interface Data {
  load: Load;
  hosts: Columns;
  notes: string[];
  said?: string[];
  ranks?: {
    rows: Columns;
    bars: Record<"transfer_ns" | "waiting_ns" | "unmatched_ns", number[]> & { place: string[] };
  };
  tables?: { by: string; title: string; parts: (TimelineRows & { of: string })[]; notes: string[] }[];
  calls?: TimelineRows;
}

interface Bar {
  place: string;
  kind: Kind;
  ns: number;
}

const TRANSFER = { name: "transfer", title: "Transfer" };
const WAITING = { name: "waiting", title: "Waiting for the last rank" };
const UNMATCHED = { name: "other", title: "Matched with no other rank: which of both is not known" };

export function draw(root: HTMLElement, data: Data, page: Page): void {
  render(
    html`
      ${data.said?.length ? html`<p>${data.said.map((sentence) => html`${sentence}. `)}</p>` : nothing}
      ${notes(data.notes)}
      <h3>Where the time of each ${data.load.has_device ? "rank's devices" : "rank"} went</h3>
      <div class="load"></div>
      <h3>Transfer and waiting</h3>
      <div class="waiting"></div>
      <h3>Who came last</h3>
      <div class="ranks"></div>
      <h3>Collectives</h3>
      <div class="collectives"></div>
      <h3>Hosts, processes and devices</h3>
      <div class="hosts"></div>
    `,
    root,
  );
  const at = (name: string): HTMLElement => root.querySelector<HTMLElement>(`.${name}`)!;
  drawLoad(at("load"), data.load);
  drawWaiting(at("waiting"), data);
  if (data.ranks) showTable(at("ranks"), data.ranks.rows, { caption: "Who came last", sort: "waited_for_ns" });
  else render(emptyNotice(), at("ranks"));
  if (data.tables && data.calls) drawCollectives(at("collectives"), data.tables, data.calls, page);
  else render(emptyNotice(), at("collectives"));
  showTable(at("hosts"), data.hosts, { caption: "Hosts, processes and devices" });
}

const emptyNotice = (): TemplateResult => html`<p class="quiet">There are no collectives in this trace.</p>`;

function drawLoad(root: HTMLElement, load: Load): void {
  let step = 0;
  const used = load.kinds.filter((kind) => kind.ns.some((ns) => ns > 0));
  render(
    html`
      <div class="controls">
        ${chooser("Step", ["The whole run", ...load.steps], step, (at) => {
          step = at;
          redraw();
        })}
      </div>
      ${legend(used)}
      <figure></figure>
      ${notes(load.notes)}
    `,
    root,
  );
  const bars = (): Bar[] =>
    load.step.flatMap((of, row) =>
      of === step ? used.map((kind) => ({ place: load.places[load.place[row]!]!, kind, ns: kind.ns[row]! })) : [],
    );
  const redraw = showPlot(
    root.querySelector("figure")!,
    (width) => stackedBars(bars(), load.places, width),
    "Time of each rank by kind",
  );
}

function drawWaiting(root: HTMLElement, data: Data): void {
  const bars = data.ranks?.bars;
  if (!bars?.place.length) {
    render(
      bars ? html`<p class="quiet">How long these collectives took is not in this trace.</p>` : emptyNotice(),
      root,
    );
    return;
  }
  const parts = [
    { kind: TRANSFER, ns: bars.transfer_ns },
    { kind: WAITING, ns: bars.waiting_ns },
    { kind: UNMATCHED, ns: bars.unmatched_ns },
  ].filter((part) => part.ns.some((ns) => ns > 0));
  const rows = bars.place.flatMap((place, row) => parts.map(({ kind, ns }) => ({ place, kind, ns: ns[row]! })));
  render(
    html`${legend(parts.map((part) => part.kind))}
      <figure></figure>`,
    root,
  );
  showPlot(
    root.querySelector("figure")!,
    (width) => stackedBars(rows, bars.place, width),
    "Time of each rank's collectives: transfer and waiting",
  );
}

/** Plots a bar for each place. A bar has a part for each kind of time. */
function stackedBars(bars: Bar[], places: string[], width: number): Plot.PlotOptions {
  const row = Math.max(14, Math.min(30, 640 / places.length));
  const longest = Math.max(...places.map((place) => place.length));
  return {
    height: row * places.length + 50,
    marginTop: 4,
    marginBottom: 40,
    marginLeft: Math.min(16 + 7 * longest, width / 2),
    x: { label: "time (ms)", transform: (ns: number) => ns / 1e6, grid: true, ticks: Math.max(2, width / 120) },
    y: { label: null, domain: places },
    marks: [
      Plot.barX(bars, {
        x: "ns",
        y: "place",
        fill: (bar: Bar) => color(bar.kind.name),
        insetTop: 1,
        insetBottom: 1,
        title: (bar: Bar) => `${bar.place}\n${bar.kind.title}: ${time(bar.ns)}`,
        tip: true,
      }),
    ],
  };
}

function drawCollectives(
  root: HTMLElement,
  tables: NonNullable<Data["tables"]>,
  calls: TimelineRows,
  page: Page,
): void {
  const ways = [...tables.map((table) => table.title), "each one, the longest first"];
  let way = 0;
  let place = "everywhere";
  const show = (): void => {
    const table = tables[way];
    const part = table ? (table.parts.find((one) => one.of === place) ?? table.parts[0]!) : calls;
    const places = (tables[0]?.parts ?? []).map((one) => one.of);
    const titles = places.map((one) => (one === "everywhere" ? "all ranks" : one));
    render(
      html`
        <div class="controls">
          ${chooser("By", ways, way, (at) => {
            way = at;
            show();
          })}
          ${
            table && places.length > 1
              ? chooser("On", titles, places.indexOf(place), (at) => {
                  place = places[at]!;
                  show();
                })
              : nothing
          }
        </div>
        <div class="rows"></div>
        ${notes(table?.notes)}
      `,
      root,
    );
    const by = table?.by ?? "kind";
    showTable(root.querySelector<HTMLElement>(".rows")!, part.rows, {
      caption: `Collectives by ${ways[way]}`,
      ...(table ? { sort: "time_ns" } : {}),
      link: {
        column: by === "size" ? "kind" : by,
        title: table ? "The longest of them in the timeline" : "It in the timeline",
        address: (row) => {
          const [from, to] = [part.from[row], part.to[row] ?? part.from[row]];
          return from && to ? linkTo(page, "timeline", { from, to, rank: String(part.rank[row]) }) : undefined;
        },
      },
    });
  };
  show();
}
