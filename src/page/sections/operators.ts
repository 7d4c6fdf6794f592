// Ops: a table for each way to group them.
import { html, render } from "lit-html";
import type { Page } from "../page.ts";
import { type Columns, showTable } from "../table.ts";

interface Data {
  tables: { by: string; title: string; rows: Columns; sort: string }[];
}

export function draw(root: HTMLElement, data: Data, page: Page): void {
  let chosen = 0;
  const show = (): void => {
    const table = data.tables[chosen]!;
    render(
      html`<div class="controls">
          <label
            >Group by
            <select
              @change=${(event: Event) => {
                chosen = (event.target as HTMLSelectElement).selectedIndex;
                show();
              }}
            >
              ${data.tables.map((one) => html`<option>${one.title}</option>`)}
            </select></label
          >
        </div>
        <div class="rows"></div>`,
      root,
    );
    const names = table.rows.values[table.rows.columns.findIndex((column) => column.name === "name")];
    showTable(root.querySelector(".rows")!, table.rows, {
      caption: `Ops by ${table.title}`,
      sort: table.sort,
      link: names && {
        column: "name",
        title: "Its calls in the timeline",
        address: (row) => page.address("timeline", { name: String(names[row]) }),
      },
    });
  };
  show();
}
