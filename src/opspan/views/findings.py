"""What is wrong with a run, the costliest first, and what to do: `opspan findings`."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from opspan.analysis import Analysed
from opspan.events.times import format_memory
from opspan.findings import Finding, findings
from opspan.printable import printable
from opspan.views.answer import Answer, time_text

_col = pl.col
_TEXTS = pl.List(pl.String)
_RANGE = pl.Struct({"rank": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "id": pl.String,
    "title": pl.String,
    "severity": pl.String,
    "confidence": pl.String,
    "at_stake_ns": pl.Int64,
    "share": pl.Float64,
    "sentence": pl.String,
    "remedy": pl.String,
    "command": pl.String,
    "read": pl.String,
    "ops": _TEXTS,
    "modules": _TEXTS,
    "steps": _TEXTS,
    "ranks": pl.List(pl.Int32),
    "ranges": pl.List(_RANGE),
    "figures": pl.List(pl.Struct({"name": pl.String, "value": pl.Float64})),
}
_NONE = "Nothing was found: no rule of docs/findings.md says anything of this run"
_WIDTH = 100  # if nothing says how wide a line may be
_NAME = 60  # characters of a name in a sentence


def rows_of(found: Analysed, files: Sequence[Path] = ()) -> pl.DataFrame:
    return pl.DataFrame([_row(finding, files) for finding in findings(found)], schema=pl.Schema(SCHEMA))


def answer(found: Analysed, files: Sequence[Path] = ()) -> Answer:
    rows = rows_of(found, files)
    return Answer("findings", rows, (), () if rows.height else (_NONE,), blocks=_blocks)


def files_text(files: Sequence[Path]) -> str:
    """The files as they would be typed; of several, the first."""
    return " ".join(shlex.quote(os.fspath(path)) for path in files[:1]) + (" ..." if len(files) > 1 else "") or "FILE"


def said(figures: Mapping[str, float], words: Mapping[str, str]) -> dict[str, str]:
    """Figures as people read them, by the end of their names."""
    return {name: _said(name, value) for name, value in figures.items()} | {
        name: _short(word) for name, word in words.items()
    }


def _said(name: str, value: float) -> str:
    if name == "ns" or name.endswith("_ns"):
        return time_text(int(value))
    if name.endswith("_share"):
        return f"{value:.1%}"
    if name.endswith("bytes"):
        return format_memory(int(value))
    return f"{value:,}"


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 3]}..."


def _row(finding: Finding, files: Sequence[Path]) -> dict[str, object]:
    rule, evidence = finding.rule, finding.evidence
    return {
        "id": rule.id,
        "title": rule.title,
        "severity": finding.severity,
        "confidence": evidence.confidence,
        "at_stake_ns": evidence.at_stake_ns,
        "share": finding.share,
        "sentence": rule.sentence.format(**said(evidence.figures, evidence.words)),
        "remedy": rule.remedy,
        "command": evidence.command or rule.command.replace("FILE", files_text(files)),
        "read": rule.read,
        "ops": list(evidence.ops),
        "modules": list(evidence.modules),
        "steps": list(evidence.steps),
        "ranks": list(evidence.ranks),
        "ranges": evidence.ranges.to_dicts(),
        "figures": [{"name": name, "value": float(value)} for name, value in evidence.figures.items()],
    }


def _blocks(rows: pl.DataFrame, width: int) -> list[str]:
    lines: list[str] = []
    for number, row in enumerate(rows.iter_rows(named=True), start=1):
        cost = "" if row["at_stake_ns"] is None else f"{time_text(row['at_stake_ns'])} at stake ({row['share']:.1%})"
        head = ", ".join(part for part in (cost, row["severity"], row["confidence"]) if part)
        sentence = f"{row['sentence'][:1].upper()}{row['sentence'][1:]}."
        lines += ["", *_wrapped(f"{number:>2}. ", f"{row['title']} [{row['id']}]: {head}", width)]
        lines += _wrapped("    ", sentence, width)
        where = [f"{what}: {', '.join(map(_short, row[what]))}" for what in ("ops", "modules", "steps") if row[what]]
        if len(row["ranks"]) > 1 or (row["ranks"] and row["ranks"] != [0]):
            where.append(f"ranks: {', '.join(map(str, row['ranks']))}")
        lines += _wrapped("    Where  ", "; ".join(where), width) if where else []
        lines += _wrapped("    Do     ", row["remedy"], width)
        lines.append(f"    Next   {row['command']}")
        lines.append(f"    Read   {row['read']}")
    return lines[1:]


def _wrapped(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width or _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
        break_long_words=False,
    )
