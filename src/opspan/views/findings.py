"""The problems of a run, the costliest first, and their remedies: `opspan findings`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from opspan import html_columns
from opspan.addresses import File
from opspan.analysis import Analysis
from opspan.analysis.lanes import in_lanes
from opspan.analysis.parts import Part, Parts
from opspan.errors import UsageError
from opspan.events.texts import format_memory
from opspan.findings import RULES, Finding, Rule, Run, apply_rules, findings
from opspan.findings.of_ranks import RunOfRanks, rank_parts
from opspan.printable import plural, printable, shell_path
from opspan.questions import Options, Question
from opspan.text_columns import Layout, TextColumn, wrapped
from opspan.views.answer import Answer
from opspan.views.fields import time_text

_col = pl.col
_RANGE = pl.Struct({"rank": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("id", "title", "severity", "confidence"), pl.String),
    "at_stake_ns": pl.Int64,
    "share": pl.Float64,
    **dict.fromkeys(("share_of", "condition", "sentence", "remedy", "command", "read"), pl.String),
    **dict.fromkeys(("ops", "modules", "lines", "steps"), pl.List(pl.String)),
    "ranks": pl.List(pl.Int32),
    "ranges": pl.List(_RANGE),
    "figures": pl.List(pl.Struct({"name": pl.String, "value": pl.Float64})),
}
_NONE = "Nothing was found: no rule says anything of this run; `opspan findings --explain all` has the rules"
_WIDTH = 100  # width of a line if no width is given
_NAME = 60  # maximum length of a name in a sentence


class Findings(pl.DataFrame):
    """A polars frame of findings. A notebook shows only the columns for people. A frame with other columns, such as a
    selection, is shown like any other frame."""

    def _repr_html_(self, **options: Any) -> str:
        if self.schema != SCHEMA:
            return super()._repr_html_(**options)
        return html_columns.or_why_not(lambda: _as_html(self), "The findings")


def rows_of_one(analysis: Analysis, options: Options) -> Findings:
    if analysis.lanes is not None:
        return rows(parts(analysis, options), options)
    return Findings([_row(finding, options.files) for finding in findings(analysis)], schema=pl.Schema(SCHEMA))


def _answer(rows: Findings) -> Answer:
    return Answer("findings", rows, (), () if rows.height else (_NONE,), blocks=_blocks)


@in_lanes
def parts(analysis: Analysis, options: Options) -> Parts:
    """Returns the findings of the rules that look at one rank at a time, and the figures for the rules that compare
    ranks."""
    run = Run(analysis)
    of_ranks = apply_rules(run, [rule for rule in RULES if not rule.is_over_ranks])
    return {
        "found": Part(pl.DataFrame([_row(finding, ()) for finding in of_ranks], schema=pl.Schema(SCHEMA))),
        **rank_parts(run),
    }


def rows(parts: Parts, options: Options) -> Findings:
    files = options.files
    run = RunOfRanks(parts)
    over_ranks = [_row(finding, files) for finding in apply_rules(run, [rule for rule in RULES if rule.is_over_ranks])]
    number = parts["ranks"].rows.height
    several = [rule.id for rule in RULES if rule.has_several]
    about = pl.when(_col("id").is_in(several)).then(_col("ops").list.first())
    groups = parts["found"].rows.with_columns(about=about).partition_by("id", "about", maintain_order=True)
    of_ranks = [_merged_row(group.drop("about"), run, number) for group in groups]
    for row in of_ranks:
        row["command"] = row["command"].replace("FILE", files_text(files))
    ordered = sorted([*of_ranks, *over_ranks], key=lambda row: -(row["at_stake_ns"] or 0))
    return Findings(ordered, schema=pl.Schema(SCHEMA))


def _merged_row(group: pl.DataFrame, run: Run, number: int) -> dict[str, Any]:
    """Merges the rows of all ranks for one finding. The texts and the cost are those of the rank with the highest cost.
    The costs of ranks are not added up, because ranks run at the same time."""
    worst = group.sort("at_stake_ns", descending=True, nulls_last=True, maintain_order=True).row(0, named=True)
    at_stake = None if worst["at_stake_ns"] is None else int(worst["at_stake_ns"])
    ranks = group["ranks"].explode().drop_nulls().unique().sort().to_list()
    more: dict[str, Any] = {
        "at_stake_ns": at_stake,
        "share": None if at_stake is None else run.share(at_stake),
        "ranks": ranks,
    }
    if number > 1 and ranks:
        first = worst["ranks"][0] if worst["ranks"] else ranks[0]
        more |= {"sentence": f"{worst['sentence']} (rank {first}; {len(ranks):,} of {number:,} ranks)"}
    return worst | more


def files_text(files: Sequence[File]) -> str:
    """Returns the files as they are typed in a command. If there are several, returns the first file and "..."."""
    return " ".join(map(shell_path, files[:1])) + (" ..." if len(files) > 1 else "") or "FILE"


def read_on(rule: Rule) -> str:
    """Returns where to read more: the rule's address on the web or, if it has none, a command that explains the
    rule."""
    return rule.read if rule.read.startswith("https:") else f"opspan findings --explain {rule.id}"


def explained(wanted: str, width: int = _WIDTH) -> str:
    """Returns a text that explains a rule, or all rules if `wanted` is "all": what the rule looks at, its threshold,
    the reason for the threshold, and the remedy."""
    rules = [rule for rule in RULES if wanted in (rule.id, "all")]
    if not rules:
        close = difflib.get_close_matches(wanted, [rule.id for rule in RULES], 1)
        meant = f"did you mean {close[0]}?" if close else f"expected all, or one of {', '.join(r.id for r in RULES)}"
        raise UsageError(f"there is no finding {wanted!r}; {meant}")
    return "".join(f"{line}\n" for rule in rules for line in _explained(rule, width))


def _explained(rule: Rule, width: int) -> list[str]:
    least = f"{rule.threshold:g}" if rule.threshold >= 1 else f"{rule.threshold:.0%}"
    parts = {
        "Looks at": f"{rule.looks_at}.",
        "Speaks": f"from {least} on: {rule.because}.",
        "Do": f"{rule.remedy}.",
    }
    if rule.read.startswith("https:"):
        parts["Read"] = rule.read
    body = [line for name, text in parts.items() for line in wrapped(f"    {name:<10}", text, width)]
    return [f"{rule.id}: {rule.title}", *body, f"    {'Next':<10}{rule.command}"]


def texts_of(figures: Mapping[str, float], words: Mapping[str, str]) -> dict[str, str]:
    """Returns the figures and words of a finding as texts. The name of a figure ends with its unit, if it has one. Long
    words are cut."""
    return {name: _figure_text(name, value) for name, value in figures.items()} | {
        name: _short(word) for name, word in words.items()
    }


def _figure_text(name: str, value: float) -> str:
    if name == "ns" or name.endswith("_ns"):
        return time_text(int(value))
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("bytes"):
        return format_memory(int(value))
    return f"{value:,}"


def _short(name: str, longest: int | None = _NAME) -> str:
    text = printable(name)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


def _row(finding: Finding, files: Sequence[File]) -> dict[str, object]:
    rule, evidence = finding.rule, finding.evidence
    return {
        "id": rule.id,
        "title": rule.title,
        "severity": finding.severity,
        "confidence": evidence.confidence,
        "at_stake_ns": evidence.at_stake_ns,
        "share": finding.share,
        "share_of": None if finding.share is None else finding.total_name,
        "condition": rule.condition or None,
        "sentence": finding.template.format(**texts_of(evidence.figures, evidence.words), total=finding.total_name),
        "remedy": rule.remedy,
        "command": evidence.command or rule.command.replace("FILE", files_text(files)),
        "read": read_on(rule),
        "ops": list(evidence.ops),
        "modules": list(evidence.modules),
        "lines": list(evidence.lines),
        "steps": list(evidence.steps),
        "ranks": list(evidence.ranks),
        "ranges": evidence.ranges.to_dicts(),
        "figures": [{"name": name, "value": float(value)} for name, value in evidence.figures.items()],
    }


def _blocks(rows: pl.DataFrame, layout: Layout) -> list[str]:
    width = layout.width or _WIDTH
    longest = None if layout.whole_names else max(_NAME, width // 2)
    lines: list[str] = []
    for number, row in enumerate(rows.iter_rows(named=True), start=1):
        cost = (
            ""
            if row["at_stake_ns"] is None
            else f"{time_text(row['at_stake_ns'])} at stake{_condition(row)} ({row['share']:.1%} of {row['share_of']})"
        )
        head = ", ".join(part for part in (cost, row["severity"], row["confidence"]) if part)
        lines += ["", *wrapped(f"{number:>2}. ", f"{row['title']} [{row['id']}]: {head}", width)]
        lines += wrapped("    ", as_sentence(row["sentence"]), width)
        where = _where(row, longest)
        lines += wrapped("    Where  ", where, width) if where else []
        lines += wrapped("    Do     ", row["remedy"], width)
        lines.append(f"    Next   {row['command']}")
        lines.append(f"    Read   {row['read']}")
    return lines[1:]


def _as_html(rows: pl.DataFrame) -> str:
    shown = rows.head(html_columns.ROWS)
    cost = [
        ("", "")
        if row["share"] is None
        else (f"{time_text(row['at_stake_ns'])}{_condition(row)}", f"{row['share']:.1%}")
        for row in shown.iter_rows(named=True)
    ]
    columns = [
        TextColumn("Finding", [f"{title} [{id_}]" for title, id_ in shown.select("title", "id").iter_rows()], least=0),
        TextColumn("At stake", [time for time, _ in cost]),
        TextColumn("Share", [share for _, share in cost]),
        TextColumn("Severity", shown["severity"].to_list(), least=0),
        TextColumn("Confidence", shown["confidence"].to_list(), least=0),
        TextColumn("What was seen", [as_sentence(text) for text in shown["sentence"].to_list()], least=0),
        TextColumn("What to do", shown["remedy"].to_list(), least=0),
    ]
    below = html_columns.more(rows.height, "the frame has all of them")
    below.append(f"A frame of {rows.width} columns, which .columns lists" if rows.height else _NONE)
    return html_columns.table(columns, plural(rows.height, "finding"), below, html_columns.LONGEST_SENTENCE)


def _condition(row: Mapping[str, Any]) -> str:
    return f" {row['condition']}" if row["condition"] else ""


def as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _where(row: Mapping[str, Any], longest: int | None) -> str:
    """Returns the ops, modules, lines, steps and ranks of a finding, each name cut to `longest` characters."""
    names = [
        f"{column}: {', '.join(_short(name, longest) for name in row[column])}"
        for column in ("ops", "modules", "lines", "steps")
        if row[column]
    ]
    if len(row["ranks"]) > 1 or (row["ranks"] and row["ranks"] != [0]):
        names.append(f"ranks: {', '.join(map(str, row['ranks']))}")
    return "; ".join(names)


QUESTION = Question(
    "findings",
    parts,
    rows,
    lambda parts, options: _answer(rows(parts, options)),
    rows_of_one,
    lambda analysis, options: _answer(rows_of_one(analysis, options)),
)
