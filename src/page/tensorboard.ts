// The page in TensorBoard: which run, worker and span is chosen above it; its parts come from the plugin.
import { type TemplateResult, html, nothing, render as draw } from "lit-html";
import { showPage } from "./page.ts";
import { FetchedParts } from "./parts.ts";
import { chooser, fresh } from "./pieces.ts";
import type { Head } from "./section.ts";
import "./page.css";

interface Span {
  name: string;
  workers: { name: string }[]; // the first may be all of them together
}
interface Run {
  name: string;
  spans: Span[];
}
interface Runs {
  runs: Run[];
  said: string; // why there are none, or that more may come
}
type Choice = { run: string; span: string; worker: string; against: string };

const AGAIN_MS = 1000; // until a page that is being made is asked for again
const LOOK_MS = 30_000; // until new runs are looked for

const here = (path: string, asked: Record<string, string> = {}): string =>
  new URL(`${path}?${new URLSearchParams(asked)}`, import.meta.url).href;

/** Called by TensorBoard, in a frame of the plugin's own. */
export async function render(): Promise<void> {
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: here("page.css") });
  document.head.append(style);
  document.documentElement.lang = "en";
  document.title = "opspan";
  const bar = document.createElement("div");
  const root = document.createElement("div");
  document.body.append(bar, root);

  let known: Runs = { runs: [], said: "" };
  let choice: Choice = { run: "", span: "", worker: "", against: "" };
  let end: () => void = () => {};
  let asked = 0; // the choice that is being shown: an answer to an earlier one is not

  const choose = (change: Partial<Choice>): void => {
    choice = settled(known.runs, { ...choice, ...change });
    drawBar();
    void show();
  };

  function drawBar(): void {
    const run = known.runs.find((one) => one.name === choice.run);
    const span = run?.spans.find((one) => one.name === choice.span);
    const others = known.runs.filter((one) => one !== run);
    draw(
      html`<form class="controls chooser" aria-label="What is shown">
        ${select("Run", known.runs, choice.run, (name) => choose({ run: name, span: "", worker: "" }))}
        ${
          run && run.spans.length > 1
            ? select("Span", run.spans, choice.span, (name) => choose({ span: name, worker: "" }))
            : nothing
        }
        ${span ? select("Worker", span.workers, choice.worker, (name) => choose({ worker: name })) : nothing}
        ${
          others.length
            ? select("Compare to", [{ name: "" }, ...others], choice.against, (name) => choose({ against: name }))
            : nothing
        }
      </form>`,
      bar,
    );
  }

  async function show(): Promise<void> {
    const mine = ++asked;
    end();
    end = () => {};
    if (!choice.run) {
      draw(
        html`<div class="page">
          <main><p class="empty">${known.said}</p></main>
        </div>`,
        fresh(root),
      );
      return;
    }
    const what = { ...choice };
    for (;;) {
      const answer = await fetch(here("head", what));
      if (mine !== asked) return;
      const text = await answer.text();
      if (mine !== asked) return;
      if (answer.status === 200) {
        end = showPage(
          fresh(root),
          JSON.parse(text) as Head,
          new FetchedParts((name) => here("part", { ...what, name })),
        );
        return;
      }
      const isComing = answer.status === 202;
      draw(
        html`<div class="page">
          <main><p class="empty" role="status">${text}</p></main>
        </div>`,
        fresh(root),
      );
      if (!isComing) return;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
      if (mine !== asked) return;
    }
  }

  async function look(): Promise<void> {
    const answer = await fetch(here("runs"));
    const found = (await answer.json()) as Runs;
    if (JSON.stringify(found) === JSON.stringify(known)) return;
    known = found;
    const before = JSON.stringify(choice);
    choice = settled(known.runs, choice);
    drawBar();
    if (JSON.stringify(choice) !== before || !choice.run) await show();
  }

  await look();
  setInterval(() => void look(), LOOK_MS);
}

/** One of what has names; no name is that of nothing. */
function select(title: string, of: { name: string }[], chosen: string, choose: (name: string) => void): TemplateResult {
  const names = of.map((one) => one.name);
  const options = names.map((name) => name || "nothing");
  return chooser(title, options, names.indexOf(chosen), (at) => choose(names[at]!));
}

/** The choice, with the first of whatever is not chosen or is no more. */
function settled(runs: Run[], choice: Choice): Choice {
  const run = runs.find((one) => one.name === choice.run) ?? runs[0];
  const span = run?.spans.find((one) => one.name === choice.span) ?? run?.spans[0];
  const worker = span?.workers.find((one) => one.name === choice.worker) ?? span?.workers[0];
  const against = runs.find((one) => one.name === choice.against && one !== run);
  return { run: run?.name ?? "", span: span?.name ?? "", worker: worker?.name ?? "", against: against?.name ?? "" };
}
