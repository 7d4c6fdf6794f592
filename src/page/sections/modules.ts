// Modules as a tree with their times, and flame graphs of modules and of calls.
import { html, nothing, render } from "lit-html";
import { type FlameData, showFlame } from "../flame.ts";
import { linkTo } from "../links.ts";
import type { Follower, Page } from "../section.ts";
import { chooser, newElement } from "../pieces.ts";
import { type Tree, type TreeData, showTree } from "../tree.ts";

interface Modules extends TreeData {
  whole: (string | null)[]; // full names, as in the trace; null in the row that sums all work outside of modules
  is_range: boolean[]; // true if calls of the module are ranges in the timeline, false if they are Python functions
}
interface Data {
  tree: Modules | null;
  why: string; // the reason why there is no tree
  measures: string[];
  flames: ({ of: string; title: string } & FlameData)[];
}

const SIDES: Record<string, string> = { device_ns: "devices", cpu_ns: "host" };
const ALWAYS_SHOWN = ["name", "class_name", "count"];

export function draw(root: HTMLElement, data: Data, page: Page): Follower {
  let measure = data.measures[0]!;
  let chosen = 0;
  let tree: Tree | undefined;
  let showMeasure: ((measure: string) => void) | undefined;

  render(
    html`
      <div class="controls">
        ${chooser(
          "Time on",
          data.measures.map((name) => SIDES[name]!),
          0,
          (at) => {
            measure = data.measures[at]!;
            tree?.show(columnsOf(data.tree!, measure), measure);
            if (data.flames[chosen]!.own[measure]) showMeasure?.(measure);
          },
        )}
      </div>
      <h3>Modules</h3>
      <div class="modules">${data.tree ? nothing : html`<p class="empty">${data.why}</p>`}</div>
      <h3>Flame graph</h3>
      <div class="controls">
        ${chooser(
          "Of",
          data.flames.map((flame) => flame.title),
          0,
          (at) => {
            chosen = at;
            drawFlame();
          },
        )}
      </div>
      <div class="flames"></div>
    `,
    root,
  );
  const place = root.querySelector<HTMLElement>(".flames")!;

  function drawFlame(): void {
    const flame = data.flames[chosen]!;
    showMeasure = showFlame(newElement(place), flame, `Flame graph of ${flame.title}`);
    if (flame.own[measure]) showMeasure(measure);
  }

  drawFlame();
  const { tree: modules } = data;
  if (!modules) return () => {};
  tree = showTree(root.querySelector(".modules")!, modules, {
    caption: "Modules",
    columns: columnsOf(modules, measure),
    sort: measure,
    address: (row) => {
      const name = modules.whole[row];
      return name && modules.is_range[row] ? linkTo(page, "timeline", { name }) : undefined;
    },
    title: "Its calls in the timeline",
  });
  return (query) => {
    const row = modules.whole.indexOf(query.get("name"));
    if (query.has("name") && row >= 0) tree.reveal(row);
  };
}

/** Returns the names of the columns that are shown: the columns in `ALWAYS_SHOWN`, and those of the chosen measure. */
function columnsOf(modules: Modules, measure: string): string[] {
  return modules.columns
    .map((column) => column.name)
    .filter((name) => ALWAYS_SHOWN.includes(name) || name === measure || name.endsWith(`_${measure}`));
}
