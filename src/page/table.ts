// A table that the reader can sort, filter and page through, with rows that open to show details.
import {
  type ColumnDef,
  type Row,
  type RowData,
  type TableState,
  createTable,
  getCoreRowModel,
  getFilteredRowModel,
  getPaginationRowModel,
  getSortedRowModel,
} from "@tanstack/table-core";
import { type TemplateResult, html, nothing, render } from "lit-html";
import { type Unit, formatValue, isNumber } from "./format.ts";
import { filterField, notes } from "./pieces.ts";

/** A column as opspan writes it into the page. If the column has a total, `of` is the total, and each cell has a bar
 * that shows the cell's share of the total. `whole` is the name of the total; the default is "all rows". */
export interface Column {
  name: string;
  title: string;
  unit: Unit;
  help?: string;
  of?: number;
  whole?: string;
}

/** A table, stored as columns: `values[column][row]`. `notes` are sentences below the table, for example about rows
 * that were left out. */
export interface Columns {
  columns: Column[];
  values: unknown[][];
  notes?: string[];
}

interface TableOptions {
  caption: string;
  sort?: string; // the column by which rows are sorted at first, with the largest value first
  link?: { column: string; address: (row: number) => string | undefined; title: string };
  detail?: (row: number) => TemplateResult | undefined; // returns the details to show below a row that is open
  rowsOfPage?: number;
}

type Place = number; // the index of a row in the columns

declare module "@tanstack/table-core" {
  // eslint-disable-next-line @typescript-eslint/no-unused-vars
  interface ColumnMeta<TData extends RowData, TValue> {
    column: Column;
  }
}

/** Draws the table into `root`. Draws it again when the reader sorts, filters or goes to another page. Returns a
 * function that sets the text of the filter. */
export function showTable(root: HTMLElement, data: Columns, options: TableOptions): (text: string) => void {
  const count = data.values[0]?.length ?? 0;
  const places: Place[] = Array.from({ length: count }, (_, place) => place);
  const columns: ColumnDef<Place>[] = data.columns.map((column, at) => ({
    id: column.name,
    accessorFn: (place) => data.values[at]![place],
    sortUndefined: "last",
    sortDescFirst: isNumber(column.unit),
    sortingFn: (a, b, id) => compare(a.getValue(id), b.getValue(id)),
    meta: { column },
  }));
  const texts = data.columns.map((column, at) => (isNumber(column.unit) ? -1 : at)).filter((at) => at >= 0);
  const opened = new Set<Place>();

  let state = {
    sorting: options.sort ? [{ id: options.sort, desc: true }] : [],
    globalFilter: "",
    pagination: { pageIndex: 0, pageSize: options.rowsOfPage ?? 25 },
    columnPinning: { left: [], right: [] },
    columnVisibility: {},
    columnOrder: [],
  } as unknown as TableState;
  const table = createTable<Place>({
    data: places,
    columns,
    state,
    onStateChange: (change) => {
      state = typeof change === "function" ? change(state) : change;
      table.setOptions((before) => ({ ...before, state }));
      draw();
    },
    renderFallbackValue: null,
    enableSortingRemoval: false,
    globalFilterFn: (row: Row<Place>, _id, wanted: string) =>
      texts.some((at) =>
        String(data.values[at]![row.original] ?? "")
          .toLowerCase()
          .includes(wanted.toLowerCase()),
      ),
    getColumnCanGlobalFilter: () => true,
    getCoreRowModel: getCoreRowModel(),
    getFilteredRowModel: getFilteredRowModel(),
    getSortedRowModel: getSortedRowModel(),
    getPaginationRowModel: getPaginationRowModel(),
  });

  function draw(): void {
    const pages = table.getPageCount();
    const matching = table.getFilteredRowModel().rows.length;
    const page = state.pagination.pageIndex;
    const isFiltered = Boolean(state.globalFilter); // a link can set a filter even if the table is short
    const controls = html`
      <div class="controls">
        ${
          count > 10 || isFiltered
            ? filterField(String(state.globalFilter ?? ""), (text) => table.setGlobalFilter(text))
            : nothing
        }
        <span class="quiet" role="status"
          >${matching === count ? `${count.toLocaleString("en")} rows` : `${matching.toLocaleString("en")} of ${count.toLocaleString("en")} rows`}</span
        >
        ${
          pages > 1
            ? html`<span
                ><button ?disabled=${page === 0} @click=${() => table.previousPage()}>Back</button> Page ${page + 1} of
                ${pages.toLocaleString("en")}
                <button ?disabled=${page >= pages - 1} @click=${() => table.nextPage()}>Next</button></span
              >`
            : nothing
        }
      </div>
    `;
    render(
      html`
        ${count > 10 || pages > 1 || isFiltered ? controls : nothing}
        <div class="table" tabindex="0" role="region" aria-label=${options.caption}>
          <table>
            <thead>
              <tr>
                ${options.detail ? html`<th><span class="hidden">Details</span></th>` : nothing}
                ${table.getAllLeafColumns().map((column) => {
                  return heading(column.columnDef.meta!.column, column.getIsSorted(), () => column.toggleSorting());
                })}
              </tr>
            </thead>
            <tbody>
              ${table.getRowModel().rows.map((row) => drawRow(row.original))}
            </tbody>
          </table>
        </div>
        ${totalsLine(data.columns)} ${notes(data.notes)}
      `,
      root,
    );
  }

  function drawRow(place: Place): TemplateResult {
    const isOpen = opened.has(place);
    const detail = isOpen ? options.detail?.(place) : undefined;
    return html`<tr>
        ${
          options.detail
            ? html`<td>
                <button aria-expanded=${isOpen} aria-label="Details" @click=${() => toggle(place)}>
                  ${isOpen ? "▾" : "▸"}
                </button>
              </td>`
            : nothing
        }
        ${data.columns.map((column, at) => cell(column, data.values[at]![place], place))}
      </tr>
      ${
        detail
          ? html`<tr class="detail">
              <td colspan=${data.columns.length + 1}>${detail}</td>
            </tr>`
          : nothing
      }`;
  }

  function cell(column: Column, value: unknown, place: Place): TemplateResult {
    if (isNumber(column.unit)) return numberCell(column, value);
    const text = formatValue(value, column.unit);
    const address = options.link?.column === column.name ? options.link.address(place) : undefined;
    const shown = address ? html`<a href=${address} title=${options.link!.title}>${text}</a>` : text;
    return html`<td class=${column.unit}>
      <span class="cut" title=${text.length > 60 ? text : nothing}>${shown}</span>
    </td>`;
  }

  function toggle(place: Place): void {
    if (!opened.delete(place)) opened.add(place);
    draw();
  }

  draw();
  return (text) => table.setGlobalFilter(text);
}

/** Returns the values of a column, or undefined if the table has no column of that name. */
export const valuesOf = (rows: Columns, name: string): unknown[] | undefined =>
  rows.values[rows.columns.findIndex((column) => column.name === name)];

/** The heading of a column. A click on the heading sorts the table by this column. */
export function heading(column: Column, order: "asc" | "desc" | false, sort: () => void): TemplateResult {
  return html`<th
    scope="col"
    class=${isNumber(column.unit) ? "number" : ""}
    aria-sort=${order === "asc" ? "ascending" : order === "desc" ? "descending" : "none"}
    title=${column.help ?? nothing}
  >
    <button @click=${sort}>${column.title}${order === "asc" ? " ▴" : order === "desc" ? " ▾" : ""}</button>
  </th>`;
}

/** Draws a cell with a number. If the column has a total, a bar behind the number shows its share of the total. */
export function numberCell(column: Column, value: unknown): TemplateResult {
  const text = formatValue(value, column.unit);
  if (!column.of || typeof value !== "number") return html`<td class="number">${text}</td>`;
  const part = Math.min(100, (100 * value) / column.of).toFixed(1);
  const share = `${formatValue(value / column.of, "share")} of ${totalName(column)}`;
  return html`<td class="number share" style="--part: ${part}%" title=${share}>${text}</td>`;
}

/** Draws the line with the totals, below the table. Bars show shares of these totals. */
export function totalsLine(columns: Column[]): TemplateResult | typeof nothing {
  const shown = columns.filter((column) => column.of);
  if (!shown.length) return nothing;
  const totals = shown.map((column) => `${column.title} ${formatValue(column.of, column.unit)}`);
  return html`<p class="quiet">Bars are shares of ${totalName(shown[0]!)}: ${totals.join("; ")}</p>`;
}

const totalName = (column: Column): string => column.whole ?? "all rows";

/** Compares two cells. null is the smallest value. The library's option `sortUndefined` does not apply to null. */
function compare(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return String(a).localeCompare(String(b));
}
