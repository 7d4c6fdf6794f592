// The summary of the run: its figures, where its time went, and the findings.
import { html, nothing, render } from "lit-html";
import { bars, parts } from "../bars.ts";
import { type Unit, formatValue, time } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Page } from "../section.ts";
import { drawInColors } from "../scheme.ts";
import { type Columns, showTable } from "../table.ts";
import { type Findings, drawFindings } from "./findings.ts";
import { type Steps, drawSteps } from "./steps.ts";
import "./overview.css";

interface Top {
  is_device: boolean;
  total_ns: number;
  name: string[];
  ns: number[];
}

interface Data {
  cards: { title: string; value: number; unit: Unit }[];
  ranks: Columns;
  devices: { rows: Columns | null; why: string; command: string };
  steps: Steps;
  idle: {
    device_ns: number;
    before_work_ns: number; // the idle time before the first work of each device
    causes: { name: string; title: string; ns: number }[];
    ops: { name: (string | null)[]; ns: number[] };
  } | null;
  findings: Findings;
  ops: Top;
  modules: Top;
  coverage: string[];
  issues: Columns | null;
}

// For each cause of idle time, the kind of time that has the same colour.
const CAUSE_COLORS: Record<string, string> = { host: "ops", launch: "calling", queued: "waiting", unknown: "other" };

export function draw(root: HTMLElement, data: Data, page: Page): void {
  const { devices, issues } = data;
  render(
    html`
      <dl class="cards">
        ${data.cards.map(
          (card) =>
            html`<div>
              <dt>${card.title}</dt>
              <dd>${formatValue(card.value, card.unit)}</dd>
            </div>`,
        )}
      </dl>
      <div class="steps"></div>
      <div class="findings"></div>
      <div class="colored"></div>
      <h3>Devices</h3>
      <div class="devices">
        ${devices.rows ? nothing : html`<p>${devices.why}. What records it: <code>${devices.command}</code></p>`}
      </div>
      <h3>Recorded</h3>
      <div class="ranks"></div>
      <h3>What could be attributed</h3>
      ${
        data.coverage.length
          ? html`<ul>
              ${data.coverage.map((line) => html`<li>${line}</li>`)}
            </ul>`
          : html`<p class="quiet">There is nothing to attribute in this trace.</p>`
      }
      <h3>Issues of the file</h3>
      ${issues ? nothing : html`<p class="quiet">None: nothing was skipped, repaired or odd.</p>`}
      <div class="issues"></div>
    `,
    root,
  );
  const at = (name: string): HTMLElement => root.querySelector<HTMLElement>(`.${name}`)!;
  drawSteps(at("steps"), data.steps);
  render(drawFindings(data.findings, page), at("findings"));
  drawInColors(() => render([idle(data, page), tops(data, page)], at("colored")));
  if (devices.rows) showTable(at("devices"), devices.rows, { caption: "Devices" });
  showTable(at("ranks"), data.ranks, { caption: "Files that were read" });
  if (issues) showTable(at("issues"), issues, { caption: "Issues of the file", rowsOfPage: 10 });
}

function idle({ idle }: Data, page: Page) {
  if (!idle) return nothing;
  const total = idle.causes.reduce((sum, cause) => sum + cause.ns, 0);
  const causes = idle.causes.map((cause) => ({ name: CAUSE_COLORS[cause.name]!, title: cause.title, value: cause.ns }));
  return html`<h3>Why devices were idle</h3>
    <p>
      ${formatValue(idle.device_ns ? total / idle.device_ns : 0, "share")} of the time of all devices, ${time(total)},
      is
      idle.${idle.before_work_ns ? ` Of that ${time(idle.before_work_ns)} is before the first work of each device.` : ""}
    </p>
    ${parts(causes, "the idle time", "Idle time of devices by cause")}
    ${
      idle.ops.name.length
        ? html`<h4>What the host was in meanwhile</h4>
            ${bars(
              idle.ops.name.map((name, at) => ({
                name: name ?? "(in no op)",
                value: idle.ops.ns[at]!,
                text: time(idle.ops.ns[at]!),
                address: name === null ? undefined : linkTo(page, "operators", { name }),
                kind: "ops",
              })),
              "Idle time of devices by what the host was in",
            )}`
        : nothing
    }`;
}

function tops(data: Data, page: Page) {
  return html`<div class="two">
    ${top("ops", "operators", data.ops, page)} ${top("modules", "modules", data.modules, page)}
  </div>`;
}

function top(what: "ops" | "modules", section: string, data: Top, page: Page) {
  const rows = data.name.map((name, at) => ({
    name,
    value: data.ns[at]!,
    text: time(data.ns[at]!),
    address: linkTo(page, section, { name }) ?? linkTo(page, "timeline", { name }),
    kind: data.is_device ? "kernel" : "ops",
  }));
  const title = `${what === "ops" ? "Ops" : "Modules"} with most time`;
  return html`<div>
    <h3>${title}</h3>
    ${
      rows.length
        ? html`<p class="quiet">Time of their own ${data.is_device ? "on devices" : "on the host"}</p>
            ${bars(rows, title, { of: `the time of all ${what}`, ns: data.total_ns })}`
        : html`<p class="quiet">None is known in this trace.</p>`
    }
  </div>`;
}
