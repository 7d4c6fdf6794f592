// Plots in the page's own look, all made by Observable Plot.
import * as Plot from "@observablehq/plot";
import { type TemplateResult, html } from "lit-html";
import { color } from "./colors.ts";
import { onScheme } from "./scheme.ts";
import { onWidth } from "./width.ts";

export { Plot };

export type Drawn = ReturnType<typeof Plot.plot>;

/** A plot as wide as its place: drawn again when that or the colours change, and when what it returns is called. `drawn`
 * is called with it each time. */
export function showPlot(
  root: HTMLElement,
  options: (width: number) => Plot.PlotOptions,
  label: string,
  drawn?: (plot: Drawn) => void,
): () => void {
  let width = 0;
  const draw = (): void => {
    if (!width) return; // it is hidden
    const plot = Plot.plot({
      style: { background: "transparent", color: "var(--text)", fontSize: "12px", overflow: "visible" },
      width,
      ...options(width),
    });
    // One picture with one name: inside it the names of marks would say nothing.
    for (const mark of plot.querySelectorAll("[aria-label]")) mark.removeAttribute("aria-label");
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", label);
    root.replaceChildren(plot);
    drawn?.(plot);
  };
  onWidth(root, (now) => {
    width = now;
    draw();
  });
  onScheme(draw);
  return draw;
}

/** What the colours of a plot mean. */
export const legend = (kinds: { name: string; title: string }[]): TemplateResult => html`
  <ul class="legend">
    ${kinds.map((kind) => html`<li style="--swatch: ${color(kind.name)}">${kind.title}</li>`)}
  </ul>
`;
