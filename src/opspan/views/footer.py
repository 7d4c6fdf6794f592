"""What is printed under every result: how much could be attributed, and what was skipped, repaired or odd."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import polars as pl

from opspan.analysis import Coverage
from opspan.analysis.coverage import Share
from opspan.printable import plural, printable
from opspan.tables import Tables

_WORST_FIRST = pl.col("severity").to_physical()
_MOST_ISSUES = 50


class Run(Protocol):
    """A trace that was analysed, or what is known of many."""

    @property
    def tables(self) -> Tables: ...
    @property
    def coverage(self) -> Coverage: ...


def footer_lines(found: Run, run: str = "") -> list[str]:
    """Sentences on the coverage, then a line for each of the worst issues. `run`: which it is, where there are two."""
    lines = [*coverage_lines(found.coverage), *issue_lines(found.tables)]
    return [f"{run}: {line}" if run else line for line in lines]


def coverage_lines(found: Coverage) -> list[str]:
    return [f"Coverage: {line}" for line in found.lines()]


def issue_lines(trace: Tables) -> list[str]:
    lines = []
    worst = trace.issues.sort(_WORST_FIRST, descending=True, maintain_order=True)
    if worst.height > _MOST_ISSUES:
        worst = _folded(worst)
    for issue in worst.head(_MOST_ISSUES).iter_rows(named=True):
        where = f" [{issue['path']}]" if issue["path"] else ""
        lines.append(f"Issue ({issue['severity']}): {issue['message']}. {issue['advice']}{where}")
    if worst.height > _MOST_ISSUES:
        more = plural(worst.height - _MOST_ISSUES, "more issue")
        lines.append(f"{more}: `--format json` and trace.issues have all of them")
    return [printable(line) for line in lines]


def _folded(issues: pl.DataFrame) -> pl.DataFrame:
    """One for all files that have the same, which names the first of them."""
    same = issues.group_by("code", "severity", "advice", maintain_order=True).agg(
        pl.col("message", "path").first(), files=pl.len()
    )
    others = pl.format("{} [and {} more like it]", "message", pl.col("files") - 1)
    return same.with_columns(message=pl.when(pl.col("files") > 1).then(others).otherwise("message"))


def coverage_values(found: Coverage) -> dict[str, Any]:
    """The figures of the coverage, for programs."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        if isinstance(value, Share):
            value = {**dataclasses.asdict(value), "fraction": value.fraction}
        values[field.name] = value
    return {**values, "backward": found.backward, "linked": found.linked}


def printable_names(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The frame, with the texts in these columns made printable. Each distinct text is handled once."""
    changes = {}
    for name in columns:
        texts = frame.select(pl.col(name).unique().cast(pl.String)).to_series()
        odd = texts.filter(texts.str.contains(r"[\pC\p{Zl}\p{Zp}]").fill_null(value=False)).to_list()
        if odd:
            changed = pl.col(name).cast(pl.String).replace(odd, [printable(text) for text in odd])
            changes[name] = changed.cast(frame.schema[name])
    return frame.with_columns(**changes) if changes else frame
