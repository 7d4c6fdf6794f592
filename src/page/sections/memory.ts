// Memory in use over time. Dragging over the curve selects a window of time for the tables below.
import { type D3BrushEvent, brushX, select } from "d3";
import { html, nothing, render } from "lit-html";
import { color } from "../colors.ts";
import { bytes, time } from "../format.ts";
import { timelineLink, nsSinceBegin } from "../links.ts";
import type { Follower, Page } from "../section.ts";
import { chooser, newElement, notes } from "../pieces.ts";
import { type PlotElement, Plot, legend, showPlot } from "../plots.ts";
import { type Columns, showTable, valuesOf } from "../table.ts";
import "./memory.css";

interface Ops {
  names: (string | null)[];
  name: number[]; // for each row, the index of the op's name in `names`
  piece: number[];
  calls: number[];
  size_increase: number[];
  allocation_count: number[];
  allocation_bytes: number[];
  self_size_increase: number[];
  self_allocation_count: number[];
  self_allocation_bytes: number[];
}

interface Place {
  title: string;
  rank: number;
  peak: { allocated: number; reserved: number | null; at: number };
  curve: { at: number[]; allocated: number[]; reserved: (number | null)[] };
  ops: Ops;
  blocks: Columns;
  at_peak: { title: string; rows: Columns }[];
}

/** Memory over time. The time of the trace is divided into pieces of equal length. Times are nanoseconds since the
 * begin of the trace. */
interface Data {
  begin_ns: string;
  first: number; // the begin of the first piece of time, in ns
  piece: number; // the length of a piece of time, in ns
  pieces: number;
  places: Place[];
  notes: string[];
}

/** A window of time, as a range of pieces. `from` is the first piece, and `to` is the piece after the last one. */
interface Window {
  from: number;
  to: number;
}

const FIGURES = [
  ["calls", "Calls", "count", "Calls that begin in the window"],
  ["self_allocation_bytes", "Self taken", "bytes", "Allocated in the op itself"],
  ["self_size_increase", "Self kept", "bytes", "Allocated less freed in the op itself"],
  ["self_allocation_count", "Self blocks", "count", "Allocations in the op itself"],
  ["allocation_bytes", "Taken", "bytes", "Allocated in the op and all that ran in it"],
  ["size_increase", "Kept", "bytes", "Allocated less freed in the op and all that ran in it"],
  ["allocation_count", "Blocks", "count", "Allocations in the op and all that ran in it"],
] as const;
const KINDS = [
  { name: "allocated", title: "Allocated" },
  { name: "reserved", title: "Reserved by torch's allocator" },
];

export function draw(root: HTMLElement, data: Data, page: Page): Follower {
  let place = data.places[0]!;
  let by = 0;
  let chosen: Window | undefined;
  let brushTo: (() => void) | undefined;
  const fullTime: Window = { from: 0, to: data.pieces };
  const at = (piece: number): number => data.first + piece * data.piece;
  const ms = (piece: number): string => (at(piece) / 1e6).toFixed(3);

  /** Selects all pieces that overlap the given time, because the data has sums of complete pieces only. */
  const choose = (from_ns: number, to_ns: number): void => {
    const piece = (ns: number): number => (ns - data.first) / data.piece;
    const from = Math.max(0, Math.min(data.pieces - 1, Math.floor(piece(from_ns) + 1e-6)));
    const to = Math.max(from + 1, Math.min(data.pieces, Math.ceil(piece(to_ns) - 1e-6)));
    chosen = to - from < data.pieces ? { from, to } : undefined;
    showWindow();
  };
  const reset = (): void => {
    chosen = undefined;
    showWindow();
  };

  function show(): void {
    const { peak, at_peak } = place;
    const reserved = place.curve.reserved.length ? KINDS : KINDS.slice(0, 1);
    render(
      html`
        <div class="controls">
          ${chooser("Memory of", titlesOf(data.places), data.places.indexOf(place), (at) => {
            place = data.places[at]!;
            by = 0;
            show();
          })}
        </div>
        <dl class="cards">
          <div>
            <dt>Most that was allocated</dt>
            <dd>${bytes(peak.allocated)}</dd>
          </div>
          <div>
            <dt>That was after</dt>
            <dd>${link(timelineLink(page, data.begin_ns, peak.at - 1e6, peak.at + 1e6, place.rank), time(peak.at))}</dd>
          </div>
          ${
            peak.reserved === null
              ? nothing
              : html`<div>
                  <dt>Reserved then</dt>
                  <dd>${bytes(peak.reserved)}</dd>
                </div>`
          }
        </dl>
        <h3>Over time</h3>
        ${legend(reserved)}
        <figure class="curve"></figure>
        <div class="window"></div>
        <h3>Who took it</h3>
        <div class="ops"></div>
        <h3>Blocks</h3>
        <div class="blocks"></div>
        <h3>What was there at the peak</h3>
        ${
          at_peak.length
            ? html`<div class="controls">
                ${chooser("By", titlesOf(at_peak), by, (at) => {
                  by = at;
                  showPeak();
                })}
              </div>`
            : html`<p class="quiet">
                Allocations have no addresses in this trace, so nobody can say which of them were there.
              </p>`
        }
        <div class="peak"></div>
        ${notes(data.notes)}
      `,
      root,
    );
    showCurve();
    showWindow();
    showPeak();
  }

  function showCurve(): void {
    const { curve } = place;
    const figure = newElement(root.querySelector(".curve")!);
    const rows = curve.at.map((ns, row) => ({ ns, allocated: curve.allocated[row]!, reserved: curve.reserved[row] }));
    const step = { x: "ns", curve: "step-after" } as const;
    const most = Math.max(place.peak.allocated, ...curve.reserved.map((reserved) => reserved ?? 0));
    const [unit, size] = unitOf(most);
    const share = (place.peak.at - at(0)) / (at(data.pieces) - at(0));
    const options = (): Plot.PlotOptions => ({
      height: 280,
      marginBottom: 42,
      x: {
        domain: [at(0), at(data.pieces)],
        label: "since the begin of the trace (ms)",
        labelOffset: 38,
        tickFormat: (ns: number) => (ns / 1e6).toLocaleString("en", { maximumFractionDigits: 3 }),
      },
      marginTop: 40, // room for the unit of the y axis, which is above the label of the peak
      y: { label: unit, transform: (count: number) => count / size, grid: true, zero: true, ticks: 5 },
      marks: [
        Plot.areaY(rows, { ...step, y: "allocated", fill: color("allocated"), fillOpacity: 0.25 }),
        Plot.lineY(rows, { ...step, y: "allocated", stroke: color("allocated"), strokeWidth: 1.5 }),
        curve.reserved.length
          ? Plot.lineY(rows, { ...step, y: "reserved", stroke: color("reserved"), strokeDasharray: "6 3" })
          : null,
        Plot.ruleX([place.peak.at], { stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "2 3" }),
        Plot.text([place.peak], {
          x: "at",
          y: "allocated",
          text: () => `peak ${bytes(place.peak.allocated)}`,
          dy: -8,
          textAnchor: share < 0.1 ? "start" : share > 0.9 ? "end" : "middle",
          fill: "currentColor",
        }),
      ],
    });
    const label = `Memory of ${place.title}: ${bytes(place.peak.allocated)} at most, after ${time(place.peak.at)}`;
    showPlot(figure, options, label, brush);
  }

  function brush(plot: PlotElement): void {
    const x = plot.scale("x")!;
    const [left, right] = x.range as [number, number];
    const [bottom, top] = plot.scale("y")!.range as [number, number];
    const brushing = brushX<unknown>().extent([
      [left, top],
      [right, bottom],
    ]);
    const layer = select(plot as SVGSVGElement)
      .append("g")
      .attr("class", "brush");
    brushing.on("end", (event: D3BrushEvent<unknown>) => {
      if (!event.sourceEvent) return; // `brushTo` moved the brush, not the reader
      if (!event.selection) return reset();
      const [from, to] = event.selection as [number, number];
      choose(Number(x.invert!(from)), Number(x.invert!(to)));
    });
    layer.call(brushing);
    brushTo = () => {
      const ends = chosen && [chosen.from, chosen.to].map((piece) => Number(x.apply(at(piece))));
      layer.call(brushing.move, ends ? (ends as [number, number]) : null);
    };
    brushTo();
  }

  function showWindow(): void {
    brushTo?.();
    const { from, to } = chosen ?? fullTime;
    const timeline = timelineLink(page, data.begin_ns, at(from), at(to), place.rank);
    const input = (title: string, piece: number, change: (ns: number) => void) =>
      html`<label
        >${title}
        <input
          type="number"
          min=${ms(0)}
          max=${ms(data.pieces)}
          step="any"
          .value=${ms(piece)}
          @change=${(event: Event) => {
            const value = (event.target as HTMLInputElement).valueAsNumber;
            if (Number.isFinite(value)) change(value * 1e6);
            showWindow();
          }}
      /></label>`;
    render(
      html`<div class="controls">
          ${input("From (ms)", from, (ns) => choose(ns, Math.max(ns, at(to))))}
          ${input("to (ms)", to, (ns) => choose(Math.min(at(from), ns), ns))}
          <button ?disabled=${!chosen} @click=${reset}>Whole time</button>
          ${timeline ? html`<a href=${timeline}>In the timeline</a>` : nothing}
        </div>
        <p class="quiet" role="status">
          ${
            chosen
              ? html`The tables below are of ${time(at(to) - at(from))}, from ${time(at(from))} to ${time(at(to))}.`
              : html`The tables below are of the whole time. Drag over the curve, or say from when to when, for a
                window; it consists of whole pieces of ${time(data.piece)}.`
          }
        </p>`,
      root.querySelector<HTMLElement>(".window")!,
    );
    const ops = opsIn(place.ops, from, to);
    showTable(root.querySelector(".ops")!, ops, {
      caption: "Memory by op",
      sort: "self_allocation_bytes",
      rowsOfPage: 15,
    });
    showTable(root.querySelector(".blocks")!, chosen ? blocksIn(place.blocks, at(from), at(to)) : place.blocks, {
      caption: "Blocks of memory, from their allocation to their release",
      sort: "bytes",
      rowsOfPage: 15,
    });
  }

  function showPeak(): void {
    const shown = place.at_peak[by];
    const element = root.querySelector<HTMLElement>(".peak")!;
    if (shown) showTable(element, shown.rows, { caption: `Memory at the peak by ${shown.title}`, sort: "bytes" });
    else render(nothing, element);
  }

  show();
  return (query) => {
    const [from, to] = [query.get("from"), query.get("to")].map((time) => nsSinceBegin(time, data.begin_ns));
    if (from !== undefined && to !== undefined) choose(from, to);
  };
}

function unitOf(most: number): [name: string, size: number] {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = Math.min(names.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(most, 1)) / 10)));
  return [names[at]!, 1024 ** at];
}

const titlesOf = (of: { title: string }[]): string[] => of.map((one) => one.title);

const link = (address: string | undefined, text: string) => (address ? html`<a href=${address}>${text}</a>` : text);

/** Sums the figures of each op over the pieces of a window. */
function opsIn(ops: Ops, from: number, to: number): Columns {
  const sums = FIGURES.map(() => new Map<number, number>());
  for (let row = 0; row < ops.piece.length; row++) {
    if (ops.piece[row]! < from || ops.piece[row]! >= to) continue;
    FIGURES.forEach(([figure], at) => {
      const name = ops.name[row]!;
      sums[at]!.set(name, (sums[at]!.get(name) ?? 0) + ops[figure][row]!);
    });
  }
  const taken = sums[4]!;
  const kept = sums[5]!;
  // Leave out ops that were called in the window but did not allocate or free memory.
  const names = [...taken.keys()].filter((name) => taken.get(name) || kept.get(name) || sums[6]!.get(name));
  return {
    columns: [
      { name: "name", title: "Op", unit: "name" },
      ...FIGURES.map(([name, title, unit, help]) => ({ name, title, unit, help })),
    ],
    values: [
      names.map((name) => ops.names[name] ?? "(in none)"),
      ...sums.map((sum) => names.map((name) => sum.get(name) ?? 0)),
    ],
  };
}

/** Returns the blocks that were allocated or released in a window. */
function blocksIn(blocks: Columns, from: number, to: number): Columns {
  const isIn = (time: unknown): boolean => typeof time === "number" && time >= from && time < to;
  const [takenNs, givenNs] = [valuesOf(blocks, "taken_ns")!, valuesOf(blocks, "given_ns")!];
  const rows = takenNs.map((_, row) => row).filter((row) => isIn(takenNs[row]) || isIn(givenNs[row]));
  return { ...blocks, values: blocks.values.map((values) => rows.map((row) => values[row])) };
}
