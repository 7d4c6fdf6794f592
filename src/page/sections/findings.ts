// The findings about the run, the costliest first, with links to the sections that show their ops, modules and times.
import { type TemplateResult, html, nothing } from "lit-html";
import { formatValue } from "../format.ts";
import { linkTo } from "../links.ts";
import type { Page } from "../section.ts";

interface Finding {
  id: string;
  title: string;
  severity: "high" | "medium" | "low" | "info";
  confidence: string;
  at_stake: string;
  share: number | null;
  share_of: string | null;
  condition: string; // the condition under which the time `at_stake` can be saved, or ""
  sentence: string;
  remedy: string;
  command: string;
  read: string;
  section: string; // the name of the section that shows what `command` prints, or ""
  ops: string[];
  modules: string[];
  lines: string[]; // source lines of the program, such as model.py:12 forward
  ranks: number[]; // the ranks that the finding is about; empty if the run has only one rank
  ranges: { rank: number; from: string; to: string; time: string }[];
}

export interface Findings {
  rows: Finding[];
}

export function drawFindings(data: Findings, page: Page): TemplateResult {
  const costs = data.rows.filter((one) => one.share !== null);
  const others = data.rows.filter((one) => one.share === null);
  return html`<h3>Findings</h3>
    ${
      costs.length
        ? html`<ol>
            ${costs.map((one) => finding(one, page))}
          </ol>`
        : html`<p class="quiet">No rule found time that could be saved.</p>`
    }
    ${
      others.length
        ? html`<h3>Worth knowing</h3>
            <ol>
              ${others.map((one) => finding(one, page))}
            </ol>`
        : nothing
    }`;
}

const finding = (one: Finding, page: Page) => html`
  <li class=${one.severity}>
    <h4>
      ${one.title}
      ${
        one.share === null
          ? nothing
          : html`<span class="stake"
              >${one.at_stake} at stake ${one.condition} (${formatValue(one.share, "share")} of ${one.share_of})</span
            >`
      }
    </h4>
    <p class="quiet tags">
      <span class="severity">${one.severity}</span> ${one.confidence}
      ${one.share === null ? nothing : html`<span class="share" style="--part: ${100 * one.share}%"></span>`}
    </p>
    <p>${one.sentence}</p>
    <p><b>Do:</b> ${one.remedy}.</p>
    ${places(one, page)}
    <p><b>Next:</b> <code>${one.command}</code> ${readingLink(one.read)}</p>
  </li>
`;

function places(one: Finding, page: Page): TemplateResult | typeof nothing {
  const links: [address: string | undefined, text: string][] = [
    ...one.ops.map((name): [string | undefined, string] => [linkTo(page, "operators", { name }), name]),
    ...one.modules.map((name): [string | undefined, string] => [linkTo(page, "modules", { name }), name]),
    ...one.ranges.map(({ rank, from, to, time }): [string | undefined, string] => [
      linkTo(page, "timeline", { from, to, rank: String(rank) }),
      `${time} of the timeline`,
    ]),
  ];
  const title = page.head.sections.find((section) => section.name === one.section)?.title;
  if (title) links.push([linkTo(page, one.section), title]);
  const known = links.filter(([address]) => address);
  const ranks = one.ranks.length
    ? `rank ${one.ranks.slice(0, 8).join(", ")}${one.ranks.length > 8 ? ", ..." : ""}`
    : "";
  const lines = one.lines.join(", ");
  if (!known.length && !ranks && !lines) return nothing;
  return html`<p class="places">
    <b>Where:</b> ${known.map(([address, text]) => html`<a href=${address!}>${text}</a> `)} ${ranks}
    ${lines ? html`<span class="mono">${lines}</span>` : nothing}
  </p>`;
}

const readingLink = (read: string) =>
  read.startsWith("https:")
    ? html`<a href=${read} rel="noreferrer">Read on</a>`
    : html`<span class="quiet">${read}</span>`;
