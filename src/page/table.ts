// A table of columns: sorted, filtered and paged by the reader, with rows that open in place.
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
import { type Unit, formatted, isNumber } from "./format.ts";
import { filterField, notes } from "./pieces.ts";

/** A column as opspan writes it. `of`: the total of which a cell shows its share as a bar behind it, and `whole` what
 * has that total; if nothing is said, all rows. */
export interface Column {
  name: string;
  title: string;
  unit: Unit;
  help?: string;
  of?: number;
  whole?: string;
}

/** Rows as columns: `values[column][row]`. `notes`: sentences, such as on what was left out. */
export interface Columns {
  columns: Column[];
  values: unknown[][];
  notes?: string[];
}

interface TableOptions {
  caption: string;
  sort?: string; // the column by which it is sorted at first, the largest first
  link?: { column: string; address: (row: number) => string | undefined; title: string };
  detail?: (row: number) => TemplateResult | undefined; // what is below a row when it is opened
  rowsOfPage?: number;
}

type Place = number; // of a row, in the columns

declare module "@tanstack/table-core" {
  // eslint-disable-next-line @typescript-eslint/no-unused-vars
  interface ColumnMeta<TData extends RowData, TValue> {
    column: Column;
  }
}

/** Draws it into `root`, and again whenever the reader asks for another order, filter or page. */
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
    const found = table.getFilteredRowModel().rows.length;
    const page = state.pagination.pageIndex;
    const isFiltered = Boolean(state.globalFilter); // by an address, perhaps: somebody may want to see the others
    const controls = html`
      <div class="controls">
        ${
          count > 10 || isFiltered
            ? filterField(String(state.globalFilter ?? ""), (text) => table.setGlobalFilter(text))
            : nothing
        }
        <span class="quiet" role="status"
          >${found === count ? `${count.toLocaleString("en")} rows` : `${found.toLocaleString("en")} of ${count.toLocaleString("en")} rows`}</span
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
        ${wholes(data.columns)} ${notes(data.notes)}
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
    const text = formatted(value, column.unit);
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

/** A column by its name. */
export const valuesOf = (rows: Columns, name: string): unknown[] | undefined =>
  rows.values[rows.columns.findIndex((column) => column.name === name)];

/** The head of a column, which sorts by it. */
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

/** A figure, with its share of the total as a bar behind it where the column has one. */
export function numberCell(column: Column, value: unknown): TemplateResult {
  const text = formatted(value, column.unit);
  if (!column.of || typeof value !== "number") return html`<td class="number">${text}</td>`;
  const part = Math.min(100, (100 * value) / column.of).toFixed(1);
  const said = `${formatted(value / column.of, "share")} of ${wholeOf(column)}`;
  return html`<td class="number share" style="--part: ${part}%" title=${said}>${text}</td>`;
}

/** Of what the bars behind figures are shares. */
export function wholes(columns: Column[]): TemplateResult | typeof nothing {
  const shown = columns.filter((column) => column.of);
  if (!shown.length) return nothing;
  const totals = shown.map((column) => `${column.title} ${formatted(column.of, column.unit)}`);
  return html`<p class="quiet">Bars are shares of ${wholeOf(shown[0]!)}: ${totals.join("; ")}</p>`;
}

const wholeOf = (column: Column): string => column.whole ?? "all rows";

/** Nothing comes after everything, whichever way the others are sorted: sortUndefined sees to undefined alone. */
function compare(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return String(a).localeCompare(String(b));
}
