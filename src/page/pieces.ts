// Small pieces that several sections have.
import { type TemplateResult, html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";

/** Sentences, such as on what was left out. */
export const notes = (sentences: (string | TemplateResult)[] = []): TemplateResult | typeof nothing =>
  sentences.length
    ? html`<ul class="notes">
        ${sentences.map((sentence) => html`<li>${sentence}</li>`)}
      </ul>`
    : nothing;

/** One of several; `choose` is called with its place. */
export const chooser = (
  title: string,
  options: string[],
  chosen: number,
  choose: (at: number) => void,
): TemplateResult => html`
  <label
    >${title}
    <select @change=${(event: Event) => choose((event.target as HTMLSelectElement).selectedIndex)}>
      ${options.map((option, at) => html`<option .selected=${live(at === chosen)}>${option}</option>`)}
    </select></label
  >
`;

/** A field for a text that rows must have. */
export const filterField = (text: string, filter: (text: string) => void): TemplateResult => html`
  <label
    >Filter
    <input
      type="search"
      .value=${text}
      @input=${(event: InputEvent) => filter((event.target as HTMLInputElement).value)}
  /></label>
`;

/** A new element in place of what is there: what drew into the last one may know of it still. */
export function fresh(root: Element): HTMLElement {
  const element = document.createElement("div");
  root.replaceChildren(element);
  return element;
}
