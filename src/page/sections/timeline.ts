// The timeline, on a canvas: lanes, search, details of the chosen shape, and addresses that lead to a place in it.
import { type TemplateResult, html, nothing, render } from "lit-html";
import { color, distinctColors } from "../colors.ts";
import { legend } from "../plots.ts";
import { time } from "../format.ts";
import { nsSinceBegin } from "../links.ts";
import type { Follower, Page } from "../section.ts";
import { SERVING_PHASES } from "../phases.ts";
import { chooser, notes } from "../pieces.ts";
import { endsOf } from "../timeline/arrows.ts";
import { scaleOf } from "../timeline/counters.ts";
import { Details, panel } from "../timeline/details.ts";
import { listen } from "../timeline/input.ts";
import { Layout } from "../timeline/layout.ts";
import { Search } from "../timeline/search.ts";
import { Stage } from "../timeline/stage.ts";
import { type Data, rowOf, traceOf } from "../timeline/trace.ts";
import { View } from "../timeline/view.ts";
import { firstSeen, neighbour, shapeInNextRow } from "../timeline/walk.ts";
import "./timeline.css";

const KINDS: Record<string, string> = {
  forward: "Forward",
  backward: "Backward",
  optimizer: "Optimizer",
  ...SERVING_PHASES,
  ops: "Ops of no known phase",
  module: "Modules",
  step: "Steps",
  loading: "Data loading",
  other: "Other ranges",
  function: "Python functions",
  calling: "API calls",
  waiting: "Waits (hatched)",
  computing: "Kernels",
  communicating: "Collectives",
  copying: "Copies",
  filling: "Fills",
  idle: "Device idle (hatched)",
};
const TWO_LINES = 34; // a strip that is higher than this number of pixels has room for two lines of text
const KEYS: [keys: string, does: string][] = [
  ["w s, + -, Ctrl + wheel", "zoom in and out"],
  ["a d, ← →, Shift + wheel, drag", "earlier and later"],
  ["wheel", "up and down the lanes"],
  ["Shift + drag", "measure a stretch, and zoom to it"],
  ["f, double click", "fit the chosen shape"],
  ["0", "the whole trace"],
  ["n p", "choose the next shape of the row, and the one before"],
  ["j k", "choose the shape below, and above"],
  ["l", "follow the arrow of the chosen shape"],
  ["c", "fold the lane of the chosen shape, and unfold it"],
  ["/", "find a name"],
  ["Esc", "choose nothing"],
];

export function draw(root: HTMLElement, data: Data, page: Page): Follower {
  const trace = traceOf(data);
  const layout = new Layout(trace);
  const view = new View(data.length);
  const search = new Search(trace);
  const details = new Details(trace);
  const ranks = [...new Set(data.groups.map((group) => group.rank))].sort((a, b) => a - b);
  const kinds = [...new Set(trace.kind)].map((kind) => data.kinds[kind]!);
  const present = Object.keys(KINDS).filter((kind) => kinds.includes(kind));
  const coloured = trace.stacks?.coloured ?? [];
  const fills = distinctColors(coloured);
  const libraries = coloured.map((name, at) => ({ name, title: `Samples in ${name}`, fill: fills[at]! }));
  if (trace.kind.includes(data.kinds.length + coloured.length))
    libraries.push({ name: "other", title: "Samples elsewhere", fill: color("other") });
  let isExact = false;

  render(
    html`
      <div class="timeline">
        <div class="controls finding"></div>
        ${legend([...present.map((name) => ({ name, title: KINDS[name]! })), ...libraries])}
        <div class="stage">
          <div class="head"><canvas class="axis" aria-hidden="true"></canvas></div>
          <div class="lanes">
            <div class="all">
              <div class="names"></div>
              <canvas
                class="shapes"
                tabindex="0"
                role="application"
                aria-label="Timeline of ${trace.count.toLocaleString("en")} shapes in ${data.lanes.length.toLocaleString("en")} lanes"
                aria-describedby="timeline-keys"
                >Lanes of shapes over time. Details of the chosen one are told below.</canvas
              >
            </div>
          </div>
          <div class="tip" hidden></div>
        </div>
        <div class="panel" aria-live="polite"></div>
        <details>
          <summary>Keys and mouse</summary>
          <dl class="keys" id="timeline-keys">
            ${KEYS.map(
              ([keys, does]) =>
                html`<div>
                  <dt>${keys}</dt>
                  <dd>${does}</dd>
                </div>`,
            )}
          </dl>
        </details>
        ${notes([...(data.merged.ranges ? [mergedNote(data)] : []), ...samplesNote(data), ...data.notes])}
        <p class="quiet">
          To look at the same in Perfetto, write a file that it opens: <code>${data.perfetto}</code>
          <button @click=${(event: Event) => void copy(event.target as HTMLElement, data.perfetto)}>Copy</button>
        </p>
      </div>
    `,
    root,
  );
  const at = <T extends HTMLElement>(selector: string): T => root.querySelector<T>(selector)!;
  const canvas = at<HTMLCanvasElement>(".shapes");
  const scroller = at(".lanes");
  const tip = at(".tip");
  drawNames();
  const stage = new Stage(trace, layout, view, canvas, at<HTMLCanvasElement>(".axis"), scroller);

  function drawNames(): void {
    at(".all").style.height = `${layout.height}px`;
    at(".stage").style.setProperty("--tall", `${layout.height}px`);
    render(
      layout.strips.map((strip) => {
        const scale = strip.what === "counter" ? scaleOf(trace, strip.at) : strip.shows;
        const full = scale ? `${strip.title}: ${scale}` : strip.title;
        return html`<button
          class=${strip.what}
          style="top: ${strip.top}px; height: ${strip.height}px"
          title=${full}
          aria-label=${full}
          ?disabled=${!strip.canFold}
          aria-expanded=${strip.canFold ? strip.isOpen : nothing}
          @click=${() => fold(strip.key)}
        >
          <span class="fold">${strip.canFold ? (strip.isOpen ? "▾" : "▸") : ""}</span>
          <span class="title">
            ${strip.isSame ? nothing : strip.title}
            ${!strip.isSame && strip.height > TWO_LINES ? html`<br />` : nothing}
            <span class="shows">${scale}</span>
          </span>
        </button>`;
      }),
      at(".names"),
    );
  }

  function redrawLayout(): void {
    drawNames();
    drawFinding();
    stage.resize();
  }

  function fold(key: string): void {
    layout.fold(key);
    redrawLayout();
  }

  function drawFinding(): void {
    const stepTo = (by: 1 | -1) => () => goToMatch(search.step(by));
    render(
      html`
        <label
          >Find
          <input
            type="search"
            .value=${search.text}
            @input=${(event: InputEvent) => find((event.target as HTMLInputElement).value)}
            @keydown=${(event: KeyboardEvent) => {
              if (event.key === "Enter") goToMatch(search.step(event.shiftKey ? -1 : 1));
              if (event.key === "Escape") canvas.focus();
            }}
        /></label>
        <label
          ><input
            type="checkbox"
            .checked=${isExact}
            @change=${(event: Event) => {
              isExact = (event.target as HTMLInputElement).checked;
              find(search.text);
            }}
          />
          exact name</label
        >
        <span>
          <button ?disabled=${!search.count} @click=${stepTo(-1)}>Previous</button>
          <button ?disabled=${!search.count} @click=${stepTo(1)}>Next</button>
        </span>
        <span class="quiet" role="status">${search.status}</span>
        <span class="right">
          ${
            ranks.length > 1
              ? chooser(
                  "Rank",
                  ["all", ...ranks.map(String)],
                  layout.rank === undefined ? 0 : 1 + ranks.indexOf(layout.rank),
                  (at) => showRank(ranks[at - 1]),
                )
              : nothing
          }
          <button @click=${showAll}>Whole trace</button>
          <button @click=${() => foldAll(true)}>Fold all</button>
          <button @click=${() => foldAll(false)}>Unfold all</button>
          <button @click=${address}>Link to this view</button>
        </span>
      `,
      at(".finding"),
    );
  }

  function find(text: string): void {
    search.find(text, isExact, layout.rank);
    stage.matches = search.matches;
    drawFinding();
    stage.requestDraw();
  }

  function goToMatch(shape: number | undefined): void {
    if (shape !== undefined) choose(shape);
    drawFinding();
  }

  function choose(shape: number): void {
    stage.chosen = shape;
    if (shape >= 0) {
      if (layout.reveal(rowOf(trace, shape))) redrawLayout();
      stage.bringIntoView(shape);
    }
    drawPanel();
    stage.requestDraw();
  }

  function fit(): void {
    if (stage.chosen >= 0) stage.fit(stage.chosen);
  }

  function drawPanel(): void {
    const actions = { choose, fit, find: findExactly };
    render(
      stage.chosen >= 0
        ? panel(trace, details, stage.chosen, page, actions)
        : html`<p class="quiet">Choose a shape to see what is known of it.</p>`,
      at(".panel"),
    );
  }

  function findExactly(name: string): void {
    isExact = true;
    find(name);
  }

  function showAll(): void {
    view.showAll();
    stage.requestDraw();
  }

  function foldAll(isFolded: boolean): void {
    layout.foldAll(isFolded);
    redrawLayout();
  }

  function showRank(rank: number | undefined): void {
    layout.rank = rank;
    layout.place();
    redrawLayout();
    if (search.text) find(search.text);
  }

  function address(): void {
    const [from, to] = [view.from, view.to].map((since) => String(BigInt(data.begin) + BigInt(Math.round(since))));
    const query: Record<string, string> = { from: from!, to: to! };
    if (search.text && isExact) query.name = search.text;
    if (layout.rank !== undefined) query.rank = String(layout.rank);
    page.show(page.address("timeline", query));
  }

  function showTip(x: number, y: number, client: { x: number; y: number } | undefined): void {
    const text = client ? stage.describe(x, y) : "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = at(".stage").getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(client!.x - box.left + 12, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${client!.y - box.top + 16}px`;
  }

  function walk(key: string): boolean {
    const { chosen } = stage;
    const near = (by: 1 | -1, isInRow: boolean): number => {
      if (chosen < 0) return firstSeen(trace, layout, scroller.scrollTop, view.from, view.to);
      return isInRow ? neighbour(trace, chosen, by) : shapeInNextRow(trace, layout, chosen, by);
    };
    const keys: Record<string, () => void> = {
      n: () => go(near(1, true)),
      p: () => go(near(-1, true)),
      j: () => go(near(1, false)),
      k: () => go(near(-1, false)),
      l: () => chosen >= 0 && go(endsOf(trace, chosen)[0]?.shape ?? -1),
      c: () => chosen >= 0 && fold(`lane ${rowOf(trace, chosen).lane}`),
      f: fit,
      "0": showAll,
      Home: showAll,
      Escape: () => choose(-1),
      "/": () => at<HTMLInputElement>("input[type=search]").focus(),
    };
    keys[key]?.();
    return key in keys;
  }

  function go(shape: number): void {
    if (shape >= 0) choose(shape);
  }

  listen(canvas, scroller, view, {
    onMove: () => stage.requestDraw(),
    onPoint: showTip,
    onChoose: (x, y) => choose(stage.shapeAt(x, y)),
    onFit: fit,
    onStretch: (from, to, isDone) => {
      stage.stretch = isDone ? undefined : [from, to];
      if (isDone) view.show(view.time(Math.min(from, to)), view.time(Math.max(from, to)));
      stage.requestDraw();
    },
    onKey: walk,
  });
  drawFinding();
  drawPanel();

  return (query) => {
    stage.resize();
    const rank = query.get("rank");
    if (rank !== null && ranks.includes(Number(rank))) showRank(Number(rank));
    const [from, to] = [query.get("from"), query.get("to")].map((at) => nsSinceBegin(at, data.begin));
    const isWindow = from !== undefined && to !== undefined;
    if (isWindow) view.show(from, to);
    const name = query.get("name");
    if (name !== null) findExactly(name);
    if (name !== null && !isWindow) goToMatch(search.step(1));
    stage.requestDraw();
  };
}

function mergedNote({ merged, files }: Data): TemplateResult {
  const which = merged.under_ns ? `under ${time(merged.under_ns)}` : "that overlap many others";
  const [many, all] = [merged.ranges, merged.of].map((count) => count.toLocaleString("en"));
  return html`Shapes ${which} are drawn together with their neighbours: ${many} of ${all}.
    <code>opspan report ${files} --between START END</code> shows them each.`;
}

function samplesNote({ samples }: Data): string[] {
  if (!samples?.merged.samples) return [];
  const [many, all] = [samples.merged.samples, samples.merged.of].map((count) => count.toLocaleString("en"));
  const within = time(samples.merged.within_ns);
  return [
    `Samples of a thread in one library within ${within} are drawn together, hatched, from the first to the last: ${many} of ${all}.`,
  ];
}

async function copy(button: HTMLElement, text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // The browser does not allow writing to the clipboard. So select the text, and the reader can copy it.
    getSelection()?.selectAllChildren(button.previousElementSibling!);
  }
}
