// Compares this run with an earlier run. Shows the difference step by step, the largest differences, and all
// differences.
import { html, nothing, render } from "lit-html";
import { color } from "../colors.ts";
import { formatSigned, time, timeUnit } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Page } from "../section.ts";
import { chooser } from "../pieces.ts";
import { legend, Plot, showPlot } from "../plots.ts";
import { type Columns, showTable, valuesOf } from "../table.ts";
import "./compare.css";

interface Table {
  by: string;
  title: string;
  time: string; // names the time that is compared, such as "Self time on the host of a step"
  rows: Columns;
  largest: { label: string[]; change_ns: number[]; is_noise: boolean[] };
}

interface Data {
  before: string; // the file of the earlier run
  after: string; // the file of this run
  verdict: string;
  said: string;
  tables: Table[];
  no_steps: string; // the reason why the table by step is missing, or ""
}

interface Bar {
  at: number;
  label: string;
  ns: number;
  isNoise: boolean;
}

const LETTERS = 44; // the maximum number of letters of a name beside a bar
const FIGURE = 90; // the space for the number at the end of a bar, in pixels
const SIDES = [
  { name: "slower", title: "takes longer than before" },
  { name: "faster", title: "takes less than before" },
];
// For each value of Table.by: the section to which the names of rows link, and the column that has these names.
const LINKS: Record<string, [section: string, column: string]> = {
  op: ["operators", "name"],
  shape: ["operators", "name"],
  module: ["modules", "module"],
  kernel: ["kernels", "name"],
  place: ["timeline", "name"],
};

const ALL_STEPS = "ProfilerStep*"; // stands for all steps; no range of the timeline has this name

export function draw(root: HTMLElement, data: Data, page: Page): void {
  let table = data.tables[0]!;
  let redraw = (): void => {};
  const titles = data.tables.map((one) => one.title);
  const show = (): void => {
    render(
      html`
        <dl class="sides">
          <div>
            <dt>Before</dt>
            <dd>${data.before}</dd>
          </div>
          <div>
            <dt>After: the run of this page</dt>
            <dd>${data.after}</dd>
          </div>
        </dl>
        <p>${data.verdict ? html`<strong>${data.verdict}</strong> ` : nothing}${data.said}.</p>
        <h3>Along the steps</h3>
        <div class="steps"></div>
        <h3>The largest differences</h3>
        <div class="controls">
          ${chooser("By", titles, data.tables.indexOf(table), (at) => {
            table = data.tables[at]!;
            show();
            redraw();
          })}
          <span class="quiet">${table.time}</span>
        </div>
        ${
          table.largest.label.length
            ? html`${legend(SIDES)}${
                table.largest.is_noise.some(Boolean)
                  ? html`<p class="quiet">Bars without a filling: no more than the noise of the steps</p>`
                  : nothing
              }`
            : html`<p class="quiet">Nothing takes longer or less than before.</p>`
        }
        <figure class="largest" ?hidden=${!table.largest.label.length}></figure>
        <div class="rows"></div>
      `,
      root,
    );
    drawRows(root.querySelector<HTMLElement>(".rows")!, table, page);
  };
  show();
  const steps = data.tables.find((one) => one.by === "step");
  drawSteps(root.querySelector<HTMLElement>(".steps")!, steps?.rows, data.no_steps);
  redraw = showPlot(
    root.querySelector<HTMLElement>(".largest")!,
    (width) => divergingBars(table.largest, width),
    "The largest differences: to the right what takes longer, to the left what takes less",
  );
}

function drawRows(root: HTMLElement, table: Table, page: Page): void {
  const [section, column] = LINKS[table.by] ?? ["", ""];
  const [names, states] = [valuesOf(table.rows, column), valuesOf(table.rows, "state")];
  const address = (row: number): string | undefined => {
    const isInThisRun = names && states?.[row] !== "gone" && names[row] !== ALL_STEPS;
    return isInThisRun ? linkTo(page, section, { name: String(names[row]) }) : undefined;
  };
  showTable(root, table.rows, {
    caption: `Differences by ${table.title}`,
    link: { column, title: "It in this run", address },
  });
}

function divergingBars(largest: Table["largest"], width: number): Plot.PlotOptions {
  const bars: Bar[] = largest.label.map((label, at) => ({
    at,
    label,
    ns: largest.change_ns[at]!,
    isNoise: largest.is_noise[at]!,
  }));
  const most = Math.max(...bars.map((bar) => Math.abs(bar.ns)));
  const [unit, ns] = timeUnit(most);
  const isNarrow = width < 700;
  const side = (bar: Bar): string => color(bar.ns > 0 ? "slower" : "faster");
  const bar = Plot.barX(bars, {
    x1: 0,
    x2: "ns",
    y: "at",
    fill: side,
    fillOpacity: (one: Bar) => (one.isNoise ? 0 : 1),
    stroke: side,
    insetTop: isNarrow ? 19 : 2,
    insetBottom: 2,
    title: (one: Bar) => `${one.label}\n${formatSigned(one.ns, time)}${one.isNoise ? ": no more than noise" : ""}`,
    tip: true,
  });
  const x = { label: `change (${unit})`, transform: (value: number) => value / ns, grid: true, ticks: width / 160 };
  const zero = Plot.ruleX([0], { stroke: "var(--text)" });
  const size = { height: (isNarrow ? 40 : 26) * bars.length + 50, marginTop: 4, marginBottom: 40 };
  if (isNarrow) {
    // A narrow page has no room beside the bars, so write the name and the number above each bar.
    const letters = Math.floor(width / 7.5) - 12;
    const text = (one: Bar): string => `${shorten(one.label, letters)} ${formatSigned(one.ns, time)}`;
    const words = {
      y: "at",
      text,
      frameAnchor: "left",
      textAnchor: "start",
      dx: 3,
      dy: -11,
      fill: "var(--text)",
    } as const;
    return { ...size, marginLeft: 4, marginRight: 4, x, y: { axis: null }, marks: [bar, zero, Plot.text(bars, words)] };
  }
  const [slower, faster] = [bars.filter((one) => one.ns > 0), bars.filter((one) => one.ns < 0)];
  const figures = { y: "at", x: "ns", text: (one: Bar) => formatSigned(one.ns, time), fill: "var(--text)" };
  return {
    ...size,
    marginLeft: 7 * Math.min(LETTERS, Math.max(...bars.map((one) => one.label.length))) + 16,
    x: { ...x, insetLeft: faster.length ? FIGURE : 0, insetRight: slower.length ? FIGURE : 0 },
    y: { type: "band", label: null, tickFormat: (at: number) => shorten(bars[at]!.label, LETTERS), tickSize: 0 },
    marks: [
      bar,
      Plot.text(slower, { ...figures, textAnchor: "start", dx: 4 }),
      Plot.text(faster, { ...figures, textAnchor: "end", dx: -4 }),
      zero,
    ],
  };
}

/** Shortens a long name in its middle, because names of kernels often differ only near their end. */
function shorten(name: string, letters: number): string {
  const end = Math.floor(letters / 3);
  return name.length > letters ? `${name.slice(0, letters - end - 1)}…${name.slice(-end)}` : name;
}

/** Plots how much longer this run took than the earlier run. The point of a step shows the sum of the differences of
 * all steps up to this step. */
function drawSteps(root: HTMLElement, rows: Columns | undefined, why: string): void {
  if (!rows) {
    render(html`<p class="quiet">${why}.</p>`, root);
    return;
  }
  const [change, sums] = ["change_ns", "accumulated_ns"].map((name) => valuesOf(rows, name)) as [number[], number[]];
  const points = sums.map((ns, at) => ({ at: at + 1, ns, change: change[at]! }));
  render(
    html`<p class="quiet">How much longer all steps up to each have taken, together, than before</p>
      <figure></figure>`,
    root,
  );
  showPlot(
    root.querySelector("figure")!,
    () => ({
      height: 220,
      marginTop: 30,
      marginLeft: 56,
      marginBottom: 40,
      x: { label: "step", interval: 1, tickFormat: "d" },
      y: { label: "longer by (ms)", transform: (ns: number) => ns / 1e6, grid: true },
      marks: [
        Plot.ruleY([0], { stroke: "var(--text)" }),
        Plot.lineY(points, { x: "at", y: "ns", stroke: color("step"), strokeWidth: 2 }),
        Plot.dot(points, {
          x: "at",
          y: "ns",
          r: points.length > 100 ? 1 : 3,
          fill: (point: { change: number }) => color(point.change > 0 ? "slower" : "faster"),
          title: (point: (typeof points)[number]) =>
            `Step ${point.at}: ${formatSigned(point.change, time)}\nSo far: ${formatSigned(point.ns, time)}`,
          tip: true,
        }),
      ],
    }),
    `Accumulated difference along ${points.length} steps`,
  );
}
