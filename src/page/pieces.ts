// Small controls and texts that several sections use.
import { type TemplateResult, html, nothing } from "lit-html";
import { live } from "lit-html/directives/live.js";

/** A list of sentences, for example about rows that were left out. */
export const notes = (sentences: (string | TemplateResult)[] = []): TemplateResult | typeof nothing =>
  sentences.length
    ? html`<ul class="notes">
        ${sentences.map((sentence) => html`<li>${sentence}</li>`)}
      </ul>`
    : nothing;

/** A drop-down list. When the reader picks an option, `choose` is called with its index. */
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

/** A text field. Only rows that contain its text are shown. */
export const filterField = (text: string, filter: (text: string) => void): TemplateResult => html`
  <label
    >Filter
    <input
      type="search"
      .value=${text}
      @input=${(event: InputEvent) => filter((event.target as HTMLInputElement).value)}
  /></label>
`;

/** Replaces the content of `root` by a new empty element, and returns the new element. The old element must not be used
 * again, because code that drew into it earlier may do so again. */
export function newElement(root: Element): HTMLElement {
  const element = document.createElement("div");
  root.replaceChildren(element);
  return element;
}
