// Bars of HTML: a list of things by how much they are, and one bar of the parts of a whole.
import { type TemplateResult, html, nothing } from "lit-html";
import { color } from "./colors.ts";
import { formatted, time } from "./format.ts";
import "./bars.css";

export interface Bar {
  name: string;
  value: number;
  text: string; // the value as people read it
  address?: string | undefined;
  kind?: string; // whose colour it has
}

/** What rows are shares of: the time `ns` of something. */
export interface Whole {
  of: string;
  ns: number;
}

/** The longest bar is that of the largest value. `whole`: each row says what share of it the row is. */
export function bars(rows: Bar[], caption: string, whole?: Whole): TemplateResult {
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
            <span class="value quiet">${whole ? share(row.value, whole) : ""}</span>
          </li>`,
      )}
    </ol>
    ${whole && rows.length ? said(whole) : nothing}`;
}

const share = (ns: number, whole: Whole): string => formatted(whole.ns ? ns / whole.ns : 0, "share");

const said = ({ of, ns }: Whole): TemplateResult => html`<p class="quiet">Shares are of ${of}: ${time(ns)}</p>`;

interface Part {
  name: string; // whose colour it has
  title: string;
  value: number;
}

/** Parts of a time, `of` in words, as one bar, and below it what they are with their shares: all can be read without
 * colours. */
export function parts(rows: Part[], of: string, label: string): TemplateResult {
  const whole = { of, ns: rows.reduce((sum, row) => sum + row.value, 0) };
  const shown = rows.filter((row) => row.value > 0);
  const names = shown.map((row) => `${row.title} ${share(row.value, whole)}`).join(", ");
  return html`<div class="parts" role="img" aria-label="${label}: ${names}">
      ${shown.map((row) => html`<span style="flex-grow: ${row.value / whole.ns}; --swatch: ${color(row.name)}"></span>`)}
    </div>
    <ul class="legend">
      ${shown.map(
        (row) =>
          html`<li style="--swatch: ${color(row.name)}">
            ${row.title} <b>${share(row.value, whole)}</b> <span class="quiet">${time(row.value)}</span>
          </li>`,
      )}
    </ul>
    ${shown.length ? said(whole) : html`<p class="quiet">Nothing</p>`}`;
}
