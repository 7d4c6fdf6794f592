// Plots by Observable Plot, in the colours and font of the page.
import * as Plot from "@observablehq/plot";
import { type TemplateResult, html } from "lit-html";
import { color } from "./colors.ts";
import { onScheme } from "./scheme.ts";
import { onWidth } from "./width.ts";

export { Plot };

export type PlotElement = ReturnType<typeof Plot.plot>;

/** Draws a plot that is as wide as `root`. Draws the plot again when the width of `root` or the colours change. Calls
 * `afterDraw` after each drawing. Returns a function with which the caller can draw the plot again. */
export function showPlot(
  root: HTMLElement,
  options: (width: number) => Plot.PlotOptions,
  label: string,
  afterDraw?: (plot: PlotElement) => void,
): () => void {
  let width = 0;
  const draw = (): void => {
    if (!width) return; // a hidden plot has no width
    const plot = Plot.plot({
      style: { background: "transparent", color: "var(--text)", fontSize: "12px", overflow: "visible" },
      width,
      ...options(width),
    });
    // Plot gives each kind of mark a name. Remove these names, so that a screen reader reads only the plot's name.
    for (const mark of plot.querySelectorAll("[aria-label]")) mark.removeAttribute("aria-label");
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", label);
    root.replaceChildren(plot);
    afterDraw?.(plot);
  };
  onWidth(root, (now) => {
    width = now;
    draw();
  });
  onScheme(draw);
  return draw;
}

/** Draws the legend of a plot: the colour and the title of each kind. */
export const legend = (kinds: { name: string; title: string; fill?: string }[]): TemplateResult => html`
  <ul class="legend">
    ${kinds.map((kind) => html`<li style="--swatch: ${kind.fill ?? color(kind.name)}">${kind.title}</li>`)}
  </ul>
`;
