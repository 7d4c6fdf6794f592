// Bars of HTML: a list of things by how much they are, and one bar of the parts of a whole.
import { type TemplateResult, html, nothing } from "lit-html";
import { color } from "./colors.ts";
import { type Unit, formatted } from "./format.ts";
import "./bars.css";

export interface Bar {
  name: string;
  value: number;
  text: string; // the value as people read it
  share?: string; // of the whole
  address?: string | undefined;
  kind?: string; // whose colour it has
}

/** The longest bar is that of the largest value. */
export function bars(rows: Bar[], caption: string): TemplateResult {
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
          <span class="value quiet">${row.share ?? ""}</span>
        </li>`,
    )}
  </ol>`;
}

interface Part {
  name: string; // whose colour it has
  title: string;
  value: number;
}

/** Parts of a whole as one bar, and below it what they are with their shares: the whole can be read without colours. */
export function parts(rows: Part[], unit: Unit, label: string): TemplateResult {
  const whole = rows.reduce((sum, row) => sum + row.value, 0);
  const shown = rows.filter((row) => row.value > 0);
  const share = (row: Part): string => formatted(row.value / whole, "share");
  const said = shown.map((row) => `${row.title} ${share(row)}`).join(", ");
  return html`<div class="parts" role="img" aria-label="${label}: ${said}">
      ${shown.map((row) => html`<span style="flex-grow: ${row.value / whole}; --swatch: ${color(row.name)}"></span>`)}
    </div>
    <ul class="legend">
      ${shown.map(
        (row) =>
          html`<li style="--swatch: ${color(row.name)}">
            ${row.title} <b>${share(row)}</b> <span class="quiet">${formatted(row.value, unit)}</span>
          </li>`,
      )}
    </ul>
    ${shown.length ? nothing : html`<p class="quiet">Nothing</p>`}`;
}
