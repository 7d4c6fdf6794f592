// A table with nested rows. The reader can open, close, filter and sort the rows. Sorted rows stay below their parent.
import { type TemplateResult, html, nothing, render } from "lit-html";
import { formatValue, isNumber } from "./format.ts";
import { filterField, notes } from "./pieces.ts";
import { type Column, type Columns, heading, numberCell, totalsLine } from "./table.ts";
import "./tree.css";

/** A tree, stored as columns. The first column has the names of rows. `parent[row]` is the index of the row's parent,
 * which is an earlier row, or null if the row is of the outermost level. */
export interface TreeData extends Columns {
  parent: (number | null)[];
}

interface TreeOptions {
  caption: string;
  columns: string[]; // the names of the columns that are shown
  sort: string; // the column by which rows are sorted, with the largest value first
  address: (row: number) => string | undefined;
  title: string; // the tooltip of the links to `address`
}

export interface Tree {
  show(columns: string[], sort: string): void;
  reveal(row: number): void;
}

const OPEN_AT_FIRST = 60; // the maximum number of rows that are shown at first

export function showTree(root: HTMLElement, data: TreeData, options: TreeOptions): Tree {
  let { columns, sort } = options;
  let descending = true;
  let filterText = "";
  let current = -1;
  const count = data.parent.length;
  const childRows = new Map<number | null, number[]>();
  data.parent.forEach((parent, row) => childRows.set(parent, [...(childRows.get(parent) ?? []), row]));
  const opened = new Set<number>();
  openFirst();

  const place = (name: string): number => data.columns.findIndex((column) => column.name === name);
  const children = (row: number | null): number[] => childRows.get(row) ?? [];
  const textOf = (row: number): string => String(data.values[0]![row] ?? "");

  /** Opens all rows of a level, then those of the next inner level, and so on. Stops before more than `OPEN_AT_FIRST`
   * rows are shown. */
  function openFirst(): void {
    let rows = childRows.get(null) ?? [];
    let shown = rows.length;
    while (rows.length) {
      const next = rows.flatMap((row) => childRows.get(row) ?? []);
      if (shown + next.length > OPEN_AT_FIRST && shown > 1) return;
      shown += next.length;
      for (const row of rows) opened.add(row);
      rows = next;
    }
  }

  /** Returns the rows whose name contains the filter text, and all their ancestors. */
  function matches(): Set<number> {
    const rows = new Set<number>();
    for (let row = count - 1; row >= 0; row--) {
      if (rows.has(row) || textOf(row).toLowerCase().includes(filterText.toLowerCase())) {
        rows.add(row);
        const parent = data.parent[row];
        if (parent !== null && parent !== undefined) rows.add(parent);
      }
    }
    return rows;
  }

  function visibleRows(): { row: number; level: number; beside: number[] }[] {
    const matching = filterText ? matches() : undefined;
    const order = data.values[place(sort)]!;
    const rows: { row: number; level: number; beside: number[] }[] = [];
    const add = (parent: number | null, level: number): void => {
      const beside = children(parent).filter((row) => matching?.has(row) ?? true);
      beside.sort((a, b) => (descending ? -1 : 1) * compare(order[a], order[b]));
      for (const row of beside) {
        rows.push({ row, level, beside });
        if (matching || opened.has(row)) add(row, level + 1);
      }
    };
    add(null, 1);
    return rows;
  }

  function draw(focus = false): void {
    const rows = visibleRows();
    if (!rows.some(({ row }) => row === current)) current = rows[0]?.row ?? -1;
    const shown = columns.map((name) => [data.columns[place(name)]!, data.values[place(name)]!] as const);
    render(
      html`
        <div class="controls">
          ${filterField(filterText, (text) => {
            filterText = text;
            draw();
          })}
          <button @click=${() => openAll(true)}>Open all</button>
          <button @click=${() => openAll(false)}>Close all</button>
          <span class="quiet" role="status"
            >${rows.length.toLocaleString("en")} of ${count.toLocaleString("en")} rows</span
          >
        </div>
        <div class="table tree">
          <table role="treegrid" aria-label=${options.caption} @keydown=${(event: KeyboardEvent) => onKey(event, rows)}>
            <thead>
              <tr>
                ${shown.map(([column]) =>
                  heading(column, column.name === sort && (descending ? "desc" : "asc"), () => sortBy(column)),
                )}
              </tr>
            </thead>
            <tbody>
              ${rows.map(({ row, level, beside }) => drawRow(row, level, beside, shown))}
            </tbody>
          </table>
        </div>
        ${totalsLine(shown.map(([column]) => column))} ${notes(data.notes)}
      `,
      root,
    );
    if (focus) root.querySelector<HTMLElement>('tbody tr[tabindex="0"]')?.focus();
  }

  function sortBy(column: Column): void {
    descending = column.name === sort ? !descending : isNumber(column.unit);
    sort = column.name;
    draw();
  }

  function drawRow(
    row: number,
    level: number,
    beside: number[],
    shown: (readonly [Column, unknown[]])[],
  ): TemplateResult {
    const isParent = children(row).length > 0;
    const isOpen = filterText !== "" || opened.has(row);
    const address = options.address(row);
    return html`<tr
      aria-level=${level}
      aria-setsize=${beside.length}
      aria-posinset=${beside.indexOf(row) + 1}
      aria-expanded=${isParent ? String(isOpen) : nothing}
      tabindex=${row === current ? 0 : -1}
      @focus=${() => (current = row)}
    >
      ${shown.map(([column, values], at) => {
        const text = formatValue(values[row], column.unit);
        if (at === 0)
          return html`<th scope="row" style="--level: ${level}">
            <span class="opener" @click=${() => toggle(row)}>${isParent ? (isOpen ? "▾" : "▸") : ""}</span>
            ${address ? html`<a href=${address} tabindex="-1" title=${options.title}>${text}</a>` : text}
          </th>`;
        return isNumber(column.unit) ? numberCell(column, values[row]) : html`<td class=${column.unit}>${text}</td>`;
      })}
    </tr>`;
  }

  function toggle(row: number): void {
    current = row;
    if (!opened.delete(row)) opened.add(row);
    draw(true);
  }

  function openAll(open: boolean): void {
    opened.clear();
    if (open) for (const row of childRows.keys()) if (row !== null) opened.add(row);
    draw();
  }

  function onKey(event: KeyboardEvent, rows: { row: number }[]): void {
    if ((event.target as Element).closest("thead")) return;
    const at = rows.findIndex(({ row }) => row === current);
    const isOpen = opened.has(current);
    const isParent = children(current).length > 0;
    if (event.key === "Enter") root.querySelector<HTMLElement>('tbody tr[tabindex="0"] a')?.click();
    else if (event.key === " " && isParent) toggle(current);
    else if (event.key === "ArrowRight" && isParent && !isOpen) toggle(current);
    else if (event.key === "ArrowLeft" && isParent && isOpen) toggle(current);
    else {
      const next = {
        ArrowDown: rows[at + 1]?.row,
        ArrowUp: rows[at - 1]?.row,
        ArrowRight: isParent ? rows[at + 1]?.row : undefined,
        ArrowLeft: data.parent[current] ?? undefined,
        Home: rows[0]?.row,
        End: rows.at(-1)?.row,
      }[event.key];
      if (next === undefined) return;
      current = next;
      draw(true);
    }
    event.preventDefault();
  }

  draw();
  return {
    show(nextColumns, nextSort) {
      columns = nextColumns;
      sort = nextSort;
      descending = true;
      draw();
    },
    reveal(row) {
      filterText = "";
      for (let above = data.parent[row]; above !== null && above !== undefined; above = data.parent[above])
        opened.add(above);
      current = row;
      draw(true);
    },
  };
}

function compare(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}
