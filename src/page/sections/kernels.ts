// Shows the work of devices: kernels by name or by launch configuration, and separate tables of copies and fills.
import { html, nothing, render } from "lit-html";
import { bars, parts } from "../bars.ts";
import { formatValue, time } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Follower, Page } from "../section.ts";
import { chooser, notes } from "../pieces.ts";
import { drawInColors } from "../scheme.ts";
import { type Columns, showTable } from "../table.ts";
import "./kernels.css";

// The colour and the title of three groups of kernels: kernels that use tensor cores, kernels that do not, and kernels
// whose name does not tell.
const USES = {
  yes: { name: "tensor cores", title: "With tensor cores" },
  no: { name: "other", title: "Without" },
  unknown: { name: "waiting", title: "Names do not say it" },
};

const ALL = "the time of all kernels";

interface Data {
  total_ns: number;
  tables: { title: string; rows: Columns; names: string[] }[];
  // For each row of the first table (kernels by name): the ops that launched the kernel, and its full names.
  ops: { op: string[]; count: number[]; ns: number[]; more: number; full: string[] }[];
  top: { name: string; ns: number }[];
  tensor_cores: { uses: keyof typeof USES; ns: number }[];
  copies: Columns | null;
  fills: Columns | null;
  notes: string[];
}

export function draw(root: HTMLElement, data: Data, page: Page): Follower {
  let chosen = 0;
  let filter: (text: string) => void = () => undefined;
  const titles = data.tables.map((one) => one.title);

  render(
    html`${data.total_ns ? html`<div class="two"></div>` : nothing}
      ${
        data.tables.length
          ? html`<h3>Kernels</h3>
              <div class="controls">
                ${chooser("Group by", titles, chosen, (at) => {
                  chosen = at;
                  show();
                })}
              </div>
              <div class="rows"></div>
              ${notes(data.notes)}`
          : html`<p class="quiet">No kernel ran in this trace: there are copies and fills only.</p>`
      }
      ${data.copies ? html`<h3>Copies</h3>` : nothing}
      <div class="copies"></div>
      ${data.fills ? html`<h3>Fills</h3>` : nothing}
      <div class="fills"></div>`,
    root,
  );
  const two = root.querySelector<HTMLElement>(".two");
  if (two) drawInColors(() => render(charts(data, page), two));
  if (data.tables.length) show();
  if (data.copies) {
    showTable(root.querySelector(".copies")!, data.copies, { caption: "Copies by direction", sort: "ns" });
  }
  if (data.fills) showTable(root.querySelector(".fills")!, data.fills, { caption: "Fills", sort: "device_ns" });

  function show(): void {
    const { title, rows, names } = data.tables[chosen]!;
    filter = showTable(root.querySelector(".rows")!, rows, {
      caption: `Kernels by ${title}`,
      sort: "device_ns",
      link: {
        column: chosen ? "kernel" : "name",
        title: "Its runs in the timeline",
        address: (row) => linkTo(page, "timeline", { name: names[row]! }),
      },
      ...(chosen ? {} : { detail: (row: number) => detail(data, row, page) }),
    });
  }

  return (query) => filter(query.get("name") ?? "");
}

function charts(data: Data, page: Page) {
  const top = data.top.map(({ name, ns }) => ({
    name,
    value: ns,
    text: time(ns),
    address: linkTo(page, "kernels", { name }),
    kind: "kernel",
  }));
  const used = data.tensor_cores.map(({ uses, ns }) => ({ ...USES[uses], value: ns }));
  return html`<div>
      <h3>Most time</h3>
      ${bars(top, "Kernels with most time", { of: ALL, ns: data.total_ns })}
    </div>
    <div>
      <h3>Tensor cores</h3>
      ${parts(used, ALL, "Time of kernels by whether they use tensor cores")}
    </div>`;
}

/** The details of a kernel: the ops that launched it, and its full names. */
function detail(data: Data, row: number, page: Page) {
  const { op, count, ns, more, full } = data.ops[row]!;
  return html`<table class="plain">
      <caption>
        Launched in
      </caption>
      <thead>
        <tr>
          <th scope="col">Op</th>
          <th scope="col" class="number">Runs</th>
          <th scope="col" class="number">Total</th>
        </tr>
      </thead>
      <tbody>
        ${op.map((name, at) => {
          const address = linkTo(page, "operators", { name });
          return html`<tr>
            <td>${address && name !== "(in none)" ? html`<a href=${address}>${name}</a>` : name}</td>
            <td class="number">${formatValue(count[at], "count")}</td>
            <td class="number">${time(ns[at]!)}</td>
          </tr>`;
        })}
      </tbody>
    </table>
    ${more ? html`<p class="quiet">and ${more} more ops</p>` : nothing}
    ${
      full.length
        ? html`<p>In full:</p>
            <ul>
              ${full.map((name) => html`<li class="mono">${name}</li>`)}
            </ul>`
        : nothing
    }`;
}
