// Shows the page in TensorBoard. The reader chooses run, span and worker above the page. TensorBoard's plugin of opspan
// sends the page's data.
import { type TemplateResult, html, nothing, render as draw } from "lit-html";
import { showPage } from "./page.ts";
import { FetchedParts } from "./parts.ts";
import { chooser, newElement } from "./pieces.ts";
import type { Head } from "./section.ts";
import "./page.css";

interface Span {
  name: string;
  workers: { name: string }[]; // the first entry can stand for all workers together
}
interface Run {
  name: string;
  spans: Span[];
}
interface Runs {
  runs: Run[];
  said: string; // the reason why there are no runs, or a note that more runs can come
}
type Choice = { run: string; span: string; worker: string; against: string };

const AGAIN_MS = 1000; // the time until a page that is not ready yet is requested again
const LOOK_MS = 30_000; // the time between two requests for new runs

const addressOf = (path: string, query: Record<string, string> = {}): string =>
  new URL(`${path}?${new URLSearchParams(query)}`, import.meta.url).href;

/** The entry point: TensorBoard calls it, in an iframe of the plugin. */
export async function render(): Promise<void> {
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: addressOf("page.css") });
  document.head.append(style);
  document.documentElement.lang = "en";
  document.title = "opspan";
  const bar = document.createElement("div");
  const root = document.createElement("div");
  document.body.append(bar, root);

  let known: Runs = { runs: [], said: "" };
  let choice: Choice = { run: "", span: "", worker: "", against: "" };
  let end: () => void = () => {};
  let latest = 0; // the number of the latest request; answers to earlier requests are ignored

  const choose = (change: Partial<Choice>): void => {
    choice = complete(known.runs, { ...choice, ...change });
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
    const number = ++latest;
    end();
    end = () => {};
    if (!choice.run) {
      draw(
        html`<div class="page">
          <main><p class="empty">${known.said}</p></main>
        </div>`,
        newElement(root),
      );
      return;
    }
    const query = { ...choice };
    for (;;) {
      const answer = await fetch(addressOf("head", query));
      if (number !== latest) return;
      const text = await answer.text();
      if (number !== latest) return;
      if (answer.status === 200) {
        end = showPage(
          newElement(root),
          JSON.parse(text) as Head,
          new FetchedParts((name) => addressOf("part", { ...query, name })),
        );
        return;
      }
      const isComing = answer.status === 202;
      draw(
        html`<div class="page">
          <main><p class="empty" role="status">${text}</p></main>
        </div>`,
        newElement(root),
      );
      if (!isComing) return;
      await new Promise((done) => setTimeout(done, AGAIN_MS));
      if (number !== latest) return;
    }
  }

  async function look(): Promise<void> {
    const answer = await fetch(addressOf("runs"));
    const fetched = (await answer.json()) as Runs;
    if (JSON.stringify(fetched) === JSON.stringify(known)) return;
    known = fetched;
    const before = JSON.stringify(choice);
    choice = complete(known.runs, choice);
    drawBar();
    if (JSON.stringify(choice) !== before || !choice.run) await show();
  }

  await look();
  setInterval(() => void look(), LOOK_MS);
}

/** A drop-down list of names; the empty name is shown as "nothing". */
function select(title: string, of: { name: string }[], chosen: string, choose: (name: string) => void): TemplateResult {
  const names = of.map((one) => one.name);
  const options = names.map((name) => name || "nothing");
  return chooser(title, options, names.indexOf(chosen), (at) => choose(names[at]!));
}

/** Completes a choice. If no run, span or worker is chosen, or if the chosen one does not exist any more, takes the
 * first run, span or worker. */
function complete(runs: Run[], choice: Choice): Choice {
  const run = runs.find((one) => one.name === choice.run) ?? runs[0];
  const span = run?.spans.find((one) => one.name === choice.span) ?? run?.spans[0];
  const worker = span?.workers.find((one) => one.name === choice.worker) ?? span?.workers[0];
  const against = runs.find((one) => one.name === choice.against && one !== run);
  return { run: run?.name ?? "", span: span?.name ?? "", worker: worker?.name ?? "", against: against?.name ?? "" };
}
