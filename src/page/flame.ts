// A flame graph that grows downwards. The width of a frame shows its time, and a frame is below the frame that called
// it. A click or Enter zooms in, so that a frame gets the full width. Escape zooms out, and so do the buttons above the
// picture, which name the frames around the current one.
import { type HierarchyRectangularNode, hierarchy, partition } from "d3";
import { type TemplateResult, html, nothing, render, svg } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { color, ink } from "./colors.ts";
import { cutTo, fontOf } from "./font.ts";
import { formatValue, time } from "./format.ts";
import { SERVING_PHASES } from "./phases.ts";
import { notes } from "./pieces.ts";
import { legend } from "./plots.ts";
import { onScheme } from "./scheme.ts";
import "./flame.css";
import { onWidth } from "./width.ts";

/** A tree of frames, stored as columns. `frames.name[i]` is an index into `names`, and `frames.parent[i]` is the index
 * of the frame's parent, or null. A parent comes before its children. */
export interface FlameData {
  names: string[];
  kinds: string[];
  frames: { name: number[]; kind: number[]; parent: (number | null)[] };
  own: Record<string, number[]>; // for each measure, such as cpu_ns, the time of each frame without its children
  notes: string[];
}

interface Frame {
  name: string;
  kind: string;
  own: number;
  children: Frame[];
}
type Node = HierarchyRectangularNode<Frame>;

const ROW = 20; // the height of a row, in pixels
const LEAST = 0.5; // the width of the narrowest frame that is drawn, in pixels
const TITLES: Record<string, string> = {
  module: "Module",
  function: "Python function",
  step: "Step",
  forward: "Forward",
  backward: "Backward",
  optimizer: "Optimizer",
  data: "Data loading",
  ...SERVING_PHASES,
  other: "Other ranges",
  rest: "Small frames, drawn as one",
};

const HELP =
  "A click or Enter opens a frame to the whole width, Escape closes it, arrows move; frames narrower than a pixel are " +
  "seen when the one around them is open";

/** Draws the graph for the first measure of `data`. Returns a function that draws the graph for another measure. */
export function showFlame(root: HTMLElement, data: FlameData, label: string): (measure: string) => void {
  let trunk = layout(data, Object.keys(data.own)[0]!);
  let open = trunk; // the frame that is zoomed to the full width
  let current = trunk; // the frame that has the keyboard focus
  let width = 0; // the width of the graph in pixels, or 0 while it is hidden

  function show(measure: string): void {
    const path = pathOf(open);
    trunk = layout(data, measure);
    open = path.reduce<Node>((node, name) => node.children?.find((child) => keyOf(child) === name) ?? node, trunk);
    current = open;
    draw();
  }

  function go(node: Node): void {
    open = node;
    current = node;
    draw();
    const box = root.querySelector(".flame-picture");
    box?.scrollTo({ top: Math.max(0, (node.depth - 2) * ROW) });
  }

  function draw(): void {
    if (!width) return;
    const nodes = visibleNodes();
    const deepest = Math.max(...nodes.map((node) => node.depth));
    const kinds = data.kinds.map((name) => ({ name: colorOf(name), title: TITLES[name] ?? name }));
    render(
      html`
        ${legend(kinds)}
        <div class="flame-path" role="group" aria-label="The frames around what is shown">
          ${open
            .ancestors()
            .reverse()
            .map(
              (node) =>
                html`<button aria-current=${node === open ? "true" : nothing} @click=${() => go(node)}>
                  ${node.data.name}
                </button>`,
            )}
        </div>
        <p class="flame-said quiet" .textContent=${live(describe(current))}></p>
        <div class="flame-picture">
          <svg
            role="tree"
            aria-label=${label}
            width=${width}
            height=${(deepest + 1) * ROW}
            font-size="12"
            @keydown=${(event: KeyboardEvent) => onKey(event, nodes)}
          >
            ${nodes.map(frame)}
          </svg>
        </div>
        ${notes([...data.notes, HELP])}
      `,
      root,
    );
  }

  const left = (node: Node): number => Math.max(0, ((node.x0 - open.x0) / (open.x1 - open.x0)) * width);
  const right = (node: Node): number => Math.min(width, ((node.x1 - open.x0) / (open.x1 - open.x0)) * width);

  /** Returns the frames to draw: the frame with the full width, the frames above it, and all frames below it that are
   * wide enough to be seen. */
  function visibleNodes(): Node[] {
    const visible: Node[] = open.ancestors().slice(1).reverse();
    const add = (node: Node): void => {
      if (right(node) - left(node) < LEAST) return;
      visible.push(node);
      node.children?.forEach(add);
    };
    add(open);
    return visible;
  }

  function frame(node: Node): TemplateResult {
    const [from, to] = [left(node), right(node)];
    const fill = color(colorOf(node.data.kind));
    const text = cutToRoom(node.data.name, to - from - 8);
    return svg`<g
      role="treeitem"
      class="flame-frame"
      transform="translate(${from},${node.depth * ROW})"
      tabindex=${node === current ? 0 : -1}
      aria-level=${node.depth + 1}
      aria-label=${describe(node)}
      @click=${() => go(node)}
      @focus=${() => focus(node)}
      @pointerenter=${() => focus(node)}
    >
      <title>${describe(node)}</title>
      <rect width=${Math.max(to - from - 1, LEAST)} height=${ROW - 1} rx="2" fill=${fill}></rect>
      ${text ? svg`<text x="4" y=${ROW - 6} fill=${ink(fill)}>${text}</text>` : nothing}
    </g>`;
  }

  /** Shows the description of a frame, without drawing all frames again. */
  function focus(node: Node): void {
    current = node;
    root.querySelector(".flame-said")!.textContent = describe(node);
  }

  function describe(node: Node): string {
    const total = node.value ?? 0;
    const share = (of: number): string => formatValue(of ? total / of : 0, "share");
    const within = node.parent ? `, ${share(node.parent.value ?? 0)} of what it is in` : "";
    return `${node.data.name}: ${time(total)} (${share(trunk.value ?? 0)} of all${within}), itself ${time(node.data.own)}`;
  }

  function onKey(event: KeyboardEvent, nodes: Node[]): void {
    if (event.key === "Enter" || event.key === " ") go(current);
    else if (event.key === "Escape" || event.key === "Backspace") go(open.parent ?? open);
    else {
      const row = nodes.filter((node) => node.depth === current.depth).sort((a, b) => a.x0 - b.x0);
      const beside = row.indexOf(current);
      const next = {
        ArrowUp: current.parent,
        ArrowDown: current.children?.find((child) => nodes.includes(child)),
        ArrowLeft: row[beside - 1],
        ArrowRight: row[beside + 1],
        Home: trunk,
      }[event.key];
      if (!next) return;
      current = next;
      draw();
    }
    event.preventDefault();
    root.querySelector<SVGElement>('.flame-frame[tabindex="0"]')?.focus();
  }

  onWidth(root, (now) => {
    width = now;
    draw();
  });
  onScheme(draw);
  return show;
}

function layout(data: FlameData, measure: string): Node {
  const own = data.own[measure]!;
  const all: Frame = { name: "All", kind: "other", own: 0, children: [] };
  const frames = own.map((ns, at): Frame => {
    const name = data.names[data.frames.name[at]!]!;
    return { name, kind: data.kinds[data.frames.kind[at]!]!, own: ns, children: [] };
  });
  frames.forEach((frame, at) => {
    const parent = data.frames.parent[at];
    (parent === null || parent === undefined ? all : frames[parent]!).children.push(frame);
  });
  const tree = hierarchy(all)
    .sum((frame) => frame.own)
    .sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
  return partition<Frame>()(tree);
}

const keyOf = (node: Node): string => `${node.data.kind} ${node.data.name}`;
const pathOf = (node: Node): string[] => node.ancestors().reverse().slice(1).map(keyOf);
const colorOf = (kind: string): string => (kind === "rest" ? "idle" : kind);

const pen = document.createElement("canvas").getContext("2d")!;
const widths = new Map<string, number>();

const cutToRoom = (text: string, room: number): string => (room < 20 ? "" : cutTo(room, text, widthOf(text)));

function widthOf(text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    pen.font = fontOf(12);
    width = pen.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}
