// Shows which functions and libraries the host's processors executed, as a tool sampled them.
import { html, render } from "lit-html";
import { chooser, newElement } from "../pieces.ts";
import type { Follower } from "../section.ts";
import { type Columns, showTable } from "../table.ts";

const TITLES = { function: "function", library: "library" };

interface Data {
  tables: { by: keyof typeof TITLES; rows: Columns }[];
}

export function draw(root: HTMLElement, data: Data): Follower {
  let filter: (text: string) => void = () => undefined;
  const titles = data.tables.map(({ by }) => TITLES[by]);

  render(
    html`<div class="controls">${chooser("Group by", titles, 0, show)}</div>
      <div class="rows"></div>`,
    root,
  );
  show(0);

  function show(at: number): void {
    const { by, rows } = data.tables[at]!;
    // opspan has sorted the rows by the weight of their samples, which can be a column that is not shown.
    filter = showTable(newElement(root.querySelector(".rows")!), rows, { caption: `Samples by ${TITLES[by]}` });
  }

  return (query) => filter(query.get("name") ?? "");
}
