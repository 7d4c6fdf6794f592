"""A trace, its tables and its findings in a notebook: small, quick, and with the same figures as their text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto, training_files
from builders.training_plan import Plan
from html_tables import Shown
from opspan.analysis import analysed
from opspan.questions import BY
from opspan.tables import Issues, Metadata
from opspan.text_columns import Layout
from opspan.trace import Trace
from views.sources import HOSTILE, nsys


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return opspan.load(nsys(tmp_path_factory.mktemp("nsys") / "run.sqlite", scale=1000))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A training in which there is something to find."""
    return training_files.load(tmp_path_factory.mktemp("trained"), Plan(item_per_step=True, slow_loader=5_000_000))


def of(trace: Trace) -> dict[str, str]:
    """Returns the cells about a trace, by title."""
    rows: dict[str, str] = {}
    title = ""
    for title_cell, cell in Shown(trace._repr_html_()).cells:
        title = title_cell or title
        rows[title] = f"{rows[title]}\n{cell}" if title in rows else cell
    return rows


class TestTrace:
    def test_it_says_what_it_is(self, exported: Trace) -> None:
        said = of(exported)

        assert list(said) == ["Tool", "Files", "Processes", "Devices", "Span", "Rows", "Coverage", "Issues"]
        assert said["Tool"].startswith("nsys")
        assert said["Files"] == exported.metadata.paths[0]
        assert (said["Processes"], said["Devices"][:1]) == ("1", "1")
        assert f"{exported.ranges.height} ranges" in said["Rows"]
        assert f"{exported.work.height} work" in said["Rows"]
        assert said["Coverage"].splitlines() == exported.coverage.lines()
        assert said["Issues"] == "none"

    def test_it_counts_the_ranks(self, exported: Trace, tmp_path: Path) -> None:
        path = nsys(tmp_path / "run.sqlite")
        assert of(opspan.load(path, path))["Processes"] == "2 in 2 ranks"

    def test_of_many_issues_it_says_how_many_more(self, exported: Trace) -> None:
        issues = Issues()
        for number in range(30):
            issues.add("truncated_file", 1, f"{number}.sqlite")
        lines = of(exported.replace(issues=issues.frame()))["Issues"].splitlines()
        assert lines[0].startswith("Issue (warning): parts of the file are missing")
        assert (len(lines), lines[-1]) == (4, "27 more: trace.issues")

    def test_nothing_more_is_analysed_than_its_coverage_needs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trace = opspan.load(nsys(tmp_path / "run.sqlite"))
        trace._repr_html_()
        assert set(trace.analysed.__dict__) == {"_known_iterations", "tables", "lanes", "attributed", "coverage"}


def broken(trace: Trace) -> dict[str, Trace]:
    ranges, work = trace.ranges, trace.work
    nothing = {name: pl.lit(None, dtype=dtype) for name, dtype in ranges.schema.items()}
    return {
        "no rank": Trace(()),
        "no rows": Trace((Metadata("test"),)),
        "a rank that is none": Trace((), ranges=ranges, work=work),
        "nothing known of its ranges": trace.replace(ranges=ranges.with_columns(**nothing)),
        "ranges that end before they begin": trace.replace(ranges=ranges.with_columns(end_ns=pl.col("start_ns") - 9)),
        "times that no number holds": trace.replace(
            ranges=ranges.with_columns(start_ns=pl.lit(-(2**63)), end_ns=pl.lit(2**63 - 1))
        ),
        "names of ten thousand characters": trace.replace(
            ranges=ranges.with_columns(name=pl.lit(HOSTILE * 1000).cast(ranges.schema["name"]))
        ),
        "a tool and files of ten thousand": Trace(
            (dataclasses.replace(trace.metadata, tool_version=HOSTILE * 1000, paths=(HOSTILE * 1000,) * 9),)
        ),
    }


BROKEN = (
    "no rank",
    "no rows",
    "a rank that is none",
    "nothing known of its ranges",
    "ranges that end before they begin",
    "times that no number holds",
    "names of ten thousand characters",
    "a tool and files of ten thousand",
)


@pytest.mark.parametrize("what", BROKEN)
def test_of_a_broken_trace_there_is_something_to_see(what: str, exported: Trace) -> None:
    trace = broken(exported)[what]
    html = trace._repr_html_()
    found = Shown(html)

    assert found.sentences[0] == "Trace"
    assert dict(found.cells)["Rows"]
    assert len(html) < 20_000
    events = trace.events()
    for shown in (events, events.key_averages(), trace.table(), trace.findings()):
        assert Shown(shown._repr_html_()).sentences
        assert "cannot be shown" not in shown._repr_html_()
        assert len(shown._repr_html_()) < 40_000


def test_what_goes_wrong_in_the_analysis_is_said(exported: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(tables: Any) -> None:
        raise pl.exceptions.ComputeError("overflow in <b>nest</b>")

    monkeypatch.setattr(analysed, "attribute", fails)
    trace = Trace(exported.ranks, **exported.frames)

    said = of(trace)
    assert said["Coverage"] == "cannot be found. ComputeError: overflow in <b>nest</b>"
    assert said["Span"] == of(exported)["Span"]


class TestTable:
    @pytest.mark.parametrize("by", BY["table"])
    def test_its_cells_are_those_of_the_text(self, by: str, exported: Trace) -> None:
        table = exported.table(by)
        found = Shown(table._repr_html_())

        text, _ = table.printer.text(10, Layout(10_000))
        rule, titles, _, *rest = text.splitlines()
        lines = rest[: rest.index(rule)]
        assert " ".join(titles.split()) == " ".join(" ".join(cell.text for cell in found.titles).split())
        for line, cells in zip([line for line in lines if line.strip()], found.cells, strict=True):
            assert line.split() == " ".join(cells).split()
        for total in rest[rest.index(rule) + 1 :]:
            assert total in found.sentences

    def test_it_says_how_many_rows_there_are_more(self, tmp_path: Path) -> None:
        events = [kineto.op(f"aten::op{number}", 1, 100 * number, 50) for number in range(25)]
        table = opspan.load(kineto.write(tmp_path / "run.json", kineto.document(events))).table()
        found = Shown(table._repr_html_())
        assert len(found.cells) == 10
        assert found.sentences[0] == "Table by name: 25 rows"
        assert "15 more: print() shows 100 of them, .rows has all" in found.sentences

    def test_without_rows_it_says_what_there_is(self) -> None:
        found = Shown(Trace((Metadata("test"),)).table()._repr_html_())
        assert found.sentences[0] == "Table by name: 0 rows"
        assert any("Nothing to show" in sentence for sentence in found.sentences)


class TestFindings:
    def test_they_are_the_sentences_of_the_frame(self, trained: Trace) -> None:
        rows = trained.findings()
        found = Shown(rows._repr_html_())

        assert rows.height
        assert found.sentences[0] == f"{rows.height} findings"
        assert len(found.cells) == min(rows.height, 10)
        for cells, row in zip(found.cells, rows.iter_rows(named=True), strict=False):
            assert cells[0] == f"{row['title']} [{row['id']}]"
            assert cells[5].lower() == f"{row['sentence']}.".lower()
            assert cells[6] == row["remedy"]

    def test_they_are_a_frame_as_any_other(self, trained: Trace) -> None:
        rows = trained.findings()
        plain = pl.DataFrame(rows.to_dicts(), schema=rows.schema)

        assert isinstance(rows, pl.DataFrame)
        assert rows.equals(plain)
        assert rows.filter(pl.col("share") > 0).equals(plain.filter(pl.col("share") > 0))
        assert rows.select("id")._repr_html_() == plain.select("id")._repr_html_()
        assert rows.drop("id")._repr_html_() == plain.drop("id")._repr_html_()
        assert repr(rows) == repr(plain)

    def test_where_there_are_none_that_is_said(self) -> None:
        found = Shown(Trace((Metadata("test"),)).findings()._repr_html_())
        assert found.sentences == [
            "0 findings",
            "Nothing was found: no rule says anything of this run; `opspan findings --explain all` has the rules",
        ]
