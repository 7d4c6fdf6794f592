"""CSV that a spreadsheet shows and does not run, and that gives back what was there."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from builders.capture import Capture
from opspan.questions import Options
from opspan.views import spreadsheet
from opspan.views.answer import as_csv
from opspan.views.table import table_of

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1+1", "'=1", "''@x", "-1-1", "-"]
PLAIN = ["aten::mm", "'quoted'", "a=b", "", "-5", "+1.5e3", "-.5", " x"]
# The pattern in docs/security.md that removes the apostrophes.
BACK = r"^'('*[=+\-@\t\r\n＝＋－＠])"  # noqa: RUF001  # their wide forms are meant


def written(frame: pl.DataFrame) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(spreadsheet.as_csv(frame), newline="")))


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(FORMULAS + PLAIN)], ids=str)
def test_a_text_that_would_be_a_formula_gets_an_apostrophe_and_nothing_else_does(dtype: pl.DataType) -> None:
    frame = pl.DataFrame({"name": pl.Series(FORMULAS + PLAIN, dtype=dtype), "n": range(-5, len(FORMULAS + PLAIN) - 5)})

    rows = written(frame)

    assert [row["name"] for row in rows] == [f"'{text}" for text in FORMULAS] + PLAIN
    assert [int(row["n"]) for row in rows] == frame["n"].to_list()


def test_titles_are_texts_too() -> None:
    assert written(pl.DataFrame({"=1+1": [1]})) == [{"'=1+1": "1"}]


@given(st.lists(st.text(alphabet="'=+-@\t\r\n＝a1.\"", max_size=6)))  # noqa: RUF001
def test_what_was_there_is_given_back(texts: list[str]) -> None:
    frame = pl.DataFrame({"name": pl.Series(texts, dtype=pl.String)})

    read = pl.Series([row["name"] for row in written(frame.with_columns(n=0))], dtype=pl.String)

    for text in read.filter(read.str.contains(r"^[=+\-@\t\r\n＝]")):  # noqa: RUF001
        float(text)
    assert read.str.replace(BACK, "$1").to_list() == texts


def test_both_kinds_of_csv_are_written_so(tmp_path: Path) -> None:
    made = Capture(pid=1)
    thread = made.thread(1)
    thread.range("=HYPERLINK(A1)", 100, 200)
    thread.range("-5", 300, 500)
    trace = opspan.load(made.write(tmp_path / "1-1.opspan"))

    trace.export(tmp_path / "out.csv")
    exported = pl.read_csv(tmp_path / "out.csv", infer_schema=False)["name"].to_list()
    printed = [row["name"] for row in csv.DictReader(io.StringIO(as_csv(table_of(trace.analysed, Options()), -1)))]

    assert exported == ["'=HYPERLINK(A1)", "-5"]
    assert sorted(printed) == sorted(exported)
