// Shows how the time of steps is divided, for the average step and for each step.
import { type TemplateResult, html, nothing, render } from "lit-html";
import { parts } from "../bars.ts";
import { color } from "../colors.ts";
import { time, timeUnit } from "../format.ts";
import { SERVING_PHASES } from "../phases.ts";
import { chooser, newElement, notes } from "../pieces.ts";
import { Plot, legend, showPlot } from "../plots.ts";
import { drawInColors } from "../scheme.ts";
import { type Columns, numberCell } from "../table.ts";

interface Process {
  title: string;
  steps: number; // the number of steps; if it is 0, the times are those of the complete process
  of_bar: number; // the number of successive steps that one bar shows; the bar shows their mean
  time_ns: number; // the mean time of a step, which is the sum of mean_ns
  median_ns: number;
  mean_ns: number[]; // for each kind, the mean time in a step
  step: (string | null)[]; // the first step of each bar
  last: (string | null)[]; // the last step of each bar
  is_outlier: boolean[];
  phase: (string | null)[]; // the serving engine's phase of each bar; null if it is unknown or differs between steps
  phases: Columns | null; // a row for each phase; null if the steps are not those of a serving engine
  ns: number[][]; // for each kind, the mean time of a step in each bar
}

export interface Steps {
  kinds: { name: string; title: string }[];
  processes: Process[];
  notes: string[];
}

interface Piece {
  at: number;
  process: string;
  name: string;
  ns: number;
  title: string;
}

export function drawSteps(root: HTMLElement, { kinds, processes, notes: sentences }: Steps): void {
  let chosen = 0;
  if (!processes.length) {
    render(html`<p class="quiet">${sentences.join(" ")}</p>`, root);
    return;
  }
  const show = (): void => {
    const process = processes[chosen]!;
    const { steps, of_bar, mean_ns, time_ns, median_ns } = process;
    const several = processes.length > 1;
    const titles = processes.map((one) => one.title);
    const what = steps > 1 ? "Average step" : steps ? "The step" : "All of the time";
    render(
      html`<h3>Where the time went</h3>
        ${
          several
            ? html`<h4>${what} of each process</h4>
                ${legend(kinds)}
                <figure class="each"></figure>
                <div class="controls">
                  ${chooser("Process", titles, chosen, (at) => {
                    chosen = at;
                    show();
                  })}
                </div>`
            : nothing
        }
        <h4>
          ${what}${steps > 1 ? html` of ${steps.toLocaleString("en")}` : nothing}:
          ${steps > 1 ? `mean ${time(time_ns)}, median ${time(median_ns)}` : time(time_ns)}
        </h4>
        <div class="average"></div>
        ${
          steps > 1
            ? html`<h4>${of_bar > 1 ? html`Steps, the mean of ${of_bar} in a row each` : "Each step"}</h4>
                ${phaseLegend(process)}
                <figure class="bars-of-steps"></figure>
                ${process.is_outlier.some(Boolean) ? html`<p class="quiet">▾ longer than the other steps</p>` : nothing}`
            : nothing
        }
        ${process.phases ? phaseTable(process.phases) : nothing} ${notes(sentences)}`,
      root,
    );
    const average = root.querySelector<HTMLElement>(".average")!;
    const shares = kinds.map((kind, at) => ({ ...kind, value: mean_ns[at]! }));
    const total = steps > 1 ? "the average step" : steps ? "the step" : "the whole time of the process";
    drawInColors(() => render(parts(shares, total, what), average));
    if (steps > 1) showSteps(newElement(root.querySelector(".bars-of-steps")!), process);
    if (several) showProcesses(newElement(root.querySelector(".each")!));
  };

  function showSteps(figure: HTMLElement, process: Process): void {
    const pieces = kinds.flatMap((kind, of) =>
      process.ns[of]!.map((ns, at): Piece => ({
        at,
        process: process.title,
        name: kind.name,
        ns,
        title: `${name(process, at)}\n${kind.title}: ${time(ns)}`,
      })),
    );
    const sums = process.step.map((_, at) => process.ns.reduce((sum, of) => sum + of[at]!, 0));
    const most = Math.max(...sums);
    const [unit, size] = timeUnit(most);
    const phases = process.phase.flatMap((phase, at) => (phase ? [{ at, phase, title: name(process, at) }] : []));
    const outliers = sums.map((ns, at) => ({ at, ns })).filter(({ at }) => process.is_outlier[at]);
    const label = `Time of ${process.steps} steps by kind`;
    showPlot(
      figure,
      (width) => ({
        height: 260,
        marginBottom: 40,
        x: {
          label: `${process.step[0] ?? ""} to ${process.last.at(-1) ?? ""}`,
          labelAnchor: "center",
          labelArrow: "none",
          labelOffset: 28,
          type: "band",
          ticks: [],
          padding: width / process.step.length > 8 ? 0.15 : 0,
        },
        y: { label: unit, transform: (ns: number) => ns / size, grid: true },
        marks: [
          Plot.barY(pieces, { x: "at", y: "ns", fill: (one: Piece) => color(one.name), title: "title", tip: true }),
          // A thin strip below each bar has the colour of its phase.
          Plot.barY(phases, {
            x: "at",
            y1: -0.045 * most,
            y2: -0.015 * most,
            fill: (one: { phase: string }) => color(one.phase),
            title: (one: { phase: string; title: string }) => `${one.title}\n${titleOf(one.phase)}`,
          }),
          Plot.text(outliers, { x: "at", y: "ns", text: () => "▾", dy: -8, fill: "currentColor" }),
          Plot.ruleY([0]),
        ],
      }),
      label,
    );
  }

  function showProcesses(figure: HTMLElement): void {
    const pieces = processes.flatMap((one, process) =>
      kinds.map((kind, of): Piece => ({
        at: process,
        process: one.title,
        name: kind.name,
        ns: one.mean_ns[of]!,
        title: `${one.title}\n${kind.title}: ${time(one.mean_ns[of]!)}`,
      })),
    );
    const [unit, size] = timeUnit(Math.max(...processes.map((one) => one.time_ns)));
    showPlot(
      figure,
      () => ({
        height: 50 + 22 * processes.length,
        marginLeft: 90,
        marginBottom: 40,
        x: { label: unit, transform: (ns: number) => ns / size, grid: true, labelOffset: 34 },
        y: { label: null, type: "band", tickFormat: (at: number) => processes[at]!.title, padding: 0.2 },
        marks: [
          Plot.barX(pieces, { y: "at", x: "ns", fill: (one: Piece) => color(one.name), title: "title", tip: true }),
        ],
      }),
      `Average step of ${processes.length} processes by kind`,
    );
  }

  show();
}

const titleOf = (phase: string): string => SERVING_PHASES[phase] ?? "No known phase";

function phaseLegend({ phase }: Process): TemplateResult | typeof nothing {
  const present = Object.keys(SERVING_PHASES).filter((one) => phase.includes(one));
  return present.length ? legend(present.map((one) => ({ name: one, title: titleOf(one) }))) : nothing;
}

/** Draws a table with a row for each phase of the serving engine. */
const phaseTable = ({ columns, values }: Columns): TemplateResult =>
  html`<table class="plain phases">
    <caption>
      Phases of the serving engine
    </caption>
    <thead>
      <tr>
        ${columns.map(
          ({ title, help }, at) =>
            html`<th scope="col" class=${at ? "number" : ""} title=${help ?? nothing}>${title}</th>`,
        )}
      </tr>
    </thead>
    <tbody>
      ${values[0]!.map(
        (phase, row) =>
          html`<tr>
            <td>${titleOf(String(phase))}</td>
            ${columns.slice(1).map((column, at) => numberCell(column, values[at + 1]![row]))}
          </tr>`,
      )}
    </tbody>
  </table>`;

const name = ({ step, last }: Process, at: number): string =>
  step[at] === last[at] ? (step[at] ?? "") : `${step[at] ?? ""} to ${last[at] ?? ""}`;
