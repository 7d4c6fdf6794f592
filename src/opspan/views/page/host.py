"""The functions and libraries that the host's processors executed, as tools sampled them. The figures are those of
`opspan functions`."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.samples import FEW
from opspan.questions import Options
from opspan.views.fields import Field, with_values
from opspan.views.functions import COUNTS, FUNCTION, LIBRARY, QUESTION, RATES, SHARES, TIMES, WEIGHTS
from opspan.views.page.columns import table
from opspan.views.page.section import Section, Subject

_NAMES = {"function": (FUNCTION, LIBRARY), "library": (LIBRARY,)}  # the key columns of each table
_CYCLES = (Field("cycles", "CPU cycles", "count"), Field("instructions", "Instructions", "count"))


def section(subject: Subject) -> Section:
    return Section("Host", {"tables": [_table(subject.analysis, by) for by in _NAMES]})


def _table(analysis: Analysis, by: str) -> dict[str, Any]:
    answer = QUESTION.answer_of(analysis, Options(by))
    first, *others = _NAMES[by]
    names = [first, *with_values(others, answer.rows)]
    # Some files have symbols without a name: an empty text.
    rows = answer.rows.with_columns(pl.col(name.name).fill_null("").replace("", name.none) for name in names)
    notes = list(answer.notes)
    if rows["share"].has_nulls():
        notes.append(f"Shares of fewer than {FEW} samples are not shown, because they would be too inexact")
    fields = (*SHARES, *_measures(rows), *COUNTS, *_CYCLES, *RATES)
    return {"by": by, "rows": table(rows, [*names, *with_values(fields, rows)], notes)}


def _measures(rows: pl.DataFrame) -> tuple[Field, ...]:
    if rows["cpu_ns"].count():
        return TIMES
    # If each sample has the weight 1, weights would repeat the numbers of samples.
    return () if rows["weight"].equals(rows["samples"]) else WEIGHTS
