// Draws two kinds of bars in HTML: a list with a bar for each value, and one bar that is divided into parts.
import { type TemplateResult, html, nothing } from "lit-html";
import { color } from "./colors.ts";
import { formatValue, time } from "./format.ts";
import "./bars.css";

export interface Bar {
  name: string;
  value: number;
  text: string; // the text that shows the value, such as "1.500 ms"
  address?: string | undefined;
  kind?: string; // the kind of time, which decides the colour of the bar
}

/** A total time. Each row shows its share of this total. `ns` is the total in nanoseconds, and `of` is its name, such
 * as "the time of all ops". */
export interface Total {
  of: string;
  ns: number;
}

/** Draws a list with a bar for each row. The largest value has the longest bar. If `total` is given, each row also
 * shows its share of `total`. */
export function bars(rows: Bar[], caption: string, total?: Total): TemplateResult {
  const most = Math.max(...rows.map((row) => row.value), 0);
  const part = (row: Bar): string => `${most ? ((100 * row.value) / most).toFixed(1) : 0}%`;
  return html`<ol class="bars" aria-label=${caption}>
      ${rows.map(
        (row) =>
          html`<li style="--part: ${part(row)}; --swatch: ${row.kind ? color(row.kind) : "var(--bar)"}">
            <span class="what" title=${row.name}
              >${row.address ? html`<a href=${row.address}>${row.name}</a>` : row.name}</span
            >
            <span class="bar"></span>
            <span class="value">${row.text}</span>
            <span class="value quiet">${total ? share(row.value, total) : ""}</span>
          </li>`,
      )}
    </ol>
    ${total && rows.length ? totalLine(total) : nothing}`;
}

const share = (ns: number, total: Total): string => formatValue(total.ns ? ns / total.ns : 0, "share");

const totalLine = ({ of, ns }: Total): TemplateResult => html`<p class="quiet">Shares are of ${of}: ${time(ns)}</p>`;

interface Part {
  name: string; // decides the colour of the part
  title: string;
  value: number;
}

/** Draws a total time as one bar that is divided into parts. Below the bar, lists the parts with their shares, because
 * some readers cannot see the colours. `of` is the name of the total time. */
export function parts(rows: Part[], of: string, label: string): TemplateResult {
  const total = { of, ns: rows.reduce((sum, row) => sum + row.value, 0) };
  const shown = rows.filter((row) => row.value > 0);
  const names = shown.map((row) => `${row.title} ${share(row.value, total)}`).join(", ");
  return html`<div class="parts" role="img" aria-label="${label}: ${names}">
      ${shown.map((row) => html`<span style="flex-grow: ${row.value / total.ns}; --swatch: ${color(row.name)}"></span>`)}
    </div>
    <ul class="legend">
      ${shown.map(
        (row) =>
          html`<li style="--swatch: ${color(row.name)}">
            ${row.title} <b>${share(row.value, total)}</b> <span class="quiet">${time(row.value)}</span>
          </li>`,
      )}
    </ul>
    ${shown.length ? totalLine(total) : html`<p class="quiet">Nothing</p>`}`;
}
