// What this is, where the time went, what is wrong with it.
import { html, render } from "lit-html";
import { legend, Plot, showPlot } from "../plots.ts";
import { color } from "../colors.ts";
import { time } from "../format.ts";

interface Data {
  cards: { title: string; value: string }[];
  steps: { step: string[]; kinds: { name: string; title: string; ns: number[] }[] };
}

export function draw(root: HTMLElement, data: Data): void {
  const { step, kinds } = data.steps;
  render(
    html`
      <dl class="cards">
        ${data.cards.map(
          (card) =>
            html`<div>
              <dt>${card.title}</dt>
              <dd>${card.value}</dd>
            </div>`,
        )}
      </dl>
      <h3>Where the time of each step went</h3>
      ${legend(kinds)}
      <figure class="steps"></figure>
    `,
    root,
  );
  const bars = kinds.flatMap((kind) =>
    kind.ns.map((ns, at) => ({ at, step: step[at]!, kind: kind.title, name: kind.name, ns })),
  );
  showPlot(
    root.querySelector<HTMLElement>(".steps")!,
    () => ({
      height: 260,
      x: { label: "step", type: "band", tickFormat: (at: number) => step[at], ticks: [] },
      y: { label: "time (ms)", transform: (ns: number) => ns / 1e6, grid: true },
      marks: [
        Plot.barY(bars, {
          x: "at",
          y: "ns",
          fill: (bar: { name: string }) => color(bar.name),
          title: (bar: (typeof bars)[number]) => `${bar.step}\n${bar.kind}: ${time(bar.ns)}`,
          tip: true,
        }),
      ],
    }),
    `Time of ${step.length} steps by kind`,
  );
}
