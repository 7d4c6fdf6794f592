"""The lines under every result: how much could be attributed, and what was skipped, repaired or odd."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import polars as pl

from opspan.analysis import Coverage
from opspan.analysis.coverage import Share
from opspan.printable import plural, printable
from opspan.tables import Tables

_MOST_ISSUES = 50


class AnalysedRun(Protocol):
    """An analysed trace, or the sums over several traces."""

    @property
    def tables(self) -> Tables: ...
    @property
    def coverage(self) -> Coverage: ...


def footer_lines(run: AnalysedRun, name: str = "") -> list[str]:
    """Returns sentences on the coverage, then a line for each of the worst issues. If two runs are compared, `name` is
    the name of the run, and each line begins with it."""
    lines = [*coverage_lines(run.coverage), *issue_lines(run.tables)]
    return [f"{name}: {line}" if name else line for line in lines]


def coverage_lines(coverage: Coverage) -> list[str]:
    return [f"Coverage: {line}" for line in coverage.lines()]


def issue_lines(trace: Tables) -> list[str]:
    lines = []
    worst = trace.issues.sort(pl.col("severity").to_physical(), descending=True, maintain_order=True)
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
    """Merges equal issues of several files into one issue, which has the message and the path of the first file."""
    same = issues.group_by("code", "severity", "advice", maintain_order=True).agg(
        pl.col("message", "path").first(), files=pl.len()
    )
    others = pl.format("{} [and {} more like it]", "message", pl.col("files") - 1)
    return same.with_columns(message=pl.when(pl.col("files") > 1).then(others).otherwise("message"))


def coverage_values(coverage: Coverage) -> dict[str, Any]:
    """Returns the figures of the coverage, for programs."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(coverage):
        value = getattr(coverage, field.name)
        if isinstance(value, Share):
            value = {**dataclasses.asdict(value), "fraction": value.fraction}
        values[field.name] = value
    return {**values, "backward": coverage.backward, "linked": coverage.linked}


def printable_names(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Makes the texts in these columns printable. Converts each distinct text only once."""
    changes = {}
    for name in columns:
        texts = frame.select(pl.col(name).unique().cast(pl.String)).to_series()
        odd = texts.filter(texts.str.contains(r"[\pC\p{Zl}\p{Zp}]").fill_null(value=False)).to_list()
        if odd:
            changed = pl.col(name).cast(pl.String).replace(odd, [printable(text) for text in odd])
            changes[name] = changed.cast(frame.schema[name])
    return frame.with_columns(**changes) if changes else frame
