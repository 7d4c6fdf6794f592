// A table whose rows lie in one another: opened and closed in place, sorted among those beside them, filtered.
import { type TemplateResult, html, nothing, render } from "lit-html";
import { formatted, isNumber } from "./format.ts";
import { filterField, notes } from "./pieces.ts";
import { type Column, type Columns, heading, numberCell, wholes } from "./table.ts";
import "./tree.css";

/** A table as columns, the first of which names the row; `parent[row]` stands before the row. */
export interface TreeData extends Columns {
  parent: (number | null)[];
}

interface TreeOptions {
  caption: string;
  columns: string[]; // which are shown
  sort: string; // the largest first
  address: (row: number) => string | undefined;
  title: string; // of where it leads
}

export interface Tree {
  show(columns: string[], sort: string): void;
  reveal(row: number): void;
}

const OPEN_AT_FIRST = 60; // rows

export function showTree(root: HTMLElement, data: TreeData, options: TreeOptions): Tree {
  let { columns, sort } = options;
  let descending = true;
  let wanted = "";
  let current = -1;
  const count = data.parent.length;
  const within = new Map<number | null, number[]>();
  data.parent.forEach((parent, row) => within.set(parent, [...(within.get(parent) ?? []), row]));
  const opened = new Set<number>();
  openFirst();

  const place = (name: string): number => data.columns.findIndex((column) => column.name === name);
  const children = (row: number | null): number[] => within.get(row) ?? [];
  const textOf = (row: number): string => String(data.values[0]![row] ?? "");

  /** From the outermost in, as long as there is room. */
  function openFirst(): void {
    let rows = within.get(null) ?? [];
    let shown = rows.length;
    while (rows.length) {
      const next = rows.flatMap((row) => within.get(row) ?? []);
      if (shown + next.length > OPEN_AT_FIRST && shown > 1) return;
      shown += next.length;
      for (const row of rows) opened.add(row);
      rows = next;
    }
  }

  /** Rows with a text in them, and those that they are in. */
  function found(): Set<number> {
    const rows = new Set<number>();
    for (let row = count - 1; row >= 0; row--) {
      if (rows.has(row) || textOf(row).toLowerCase().includes(wanted.toLowerCase())) {
        rows.add(row);
        const parent = data.parent[row];
        if (parent !== null && parent !== undefined) rows.add(parent);
      }
    }
    return rows;
  }

  function visible(): { row: number; level: number; beside: number[] }[] {
    const kept = wanted ? found() : undefined;
    const order = data.values[place(sort)]!;
    const rows: { row: number; level: number; beside: number[] }[] = [];
    const add = (parent: number | null, level: number): void => {
      const beside = children(parent).filter((row) => kept?.has(row) ?? true);
      beside.sort((a, b) => (descending ? -1 : 1) * compare(order[a], order[b]));
      for (const row of beside) {
        rows.push({ row, level, beside });
        if (kept || opened.has(row)) add(row, level + 1);
      }
    };
    add(null, 1);
    return rows;
  }

  function draw(focus = false): void {
    const rows = visible();
    if (!rows.some(({ row }) => row === current)) current = rows[0]?.row ?? -1;
    const shown = columns.map((name) => [data.columns[place(name)]!, data.values[place(name)]!] as const);
    render(
      html`
        <div class="controls">
          ${filterField(wanted, (text) => {
            wanted = text;
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
        ${wholes(shown.map(([column]) => column))} ${notes(data.notes)}
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
    const isOpen = wanted !== "" || opened.has(row);
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
        const text = formatted(values[row], column.unit);
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
    if (open) for (const row of within.keys()) if (row !== null) opened.add(row);
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
      wanted = "";
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
