"""The section on the host: its figures are those of `trace.sampled_functions()`, and only traces with samples have
it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.tables import TABLES
from opspan.trace import Trace
from opspan.views.page.columns import MOST_ROWS, text
from opspan.views.page.document import page_parts
from opspan.views.page.section import Subject
from page.browser import WIDTHS, Browser
from page.faults import grave_faults
from page.shares import assert_shares, seen_in
from views.sources import HOSTILE, PID, nsys

BY = ("function", "library")
LEAVES = ("spin", "memcpy", "rare", HOSTILE.replace(";", ","), "0x7f00")
# Event -> its weight; None: the file does not name the event.
EVENTS: dict[str, dict[str | None, int]] = {
    "an event without a name": {None: 1},
    "time": {"cpu-clock": 1_000_000},
    "counts": {"INST_RETIRED.ANY": 3_000, "CPU_CLK_UNHALTED.THREAD": 2_000, "LONGEST_LAT_CACHE.MISS": 7},
}
REAL = ("nsys/torch_lm_2025.sqlite", "nsys/mpi_saxpy_2022.sqlite", "vtune/r010hs_tasks/r010hs", "vtune/r000cc_2015")


def sampled(trace: Trace, weights: dict[str | None, int], count: int = 300) -> Trace:
    """The trace with `count` samples of each event. The last leaves have too few for a share."""
    rows = [
        {
            "rank": 0,
            "pid": PID,
            "tid": PID,
            "time_ns": 900 + 30 * number,
            "weight": weight,
            "event": event,
            "stack": f"main;run;{LEAVES[min(number % 7, 2) if number % 50 else 3 + number % 2]}",
            "libraries": f"/usr/bin/python;/lib/libtorch.so;/lib/lib{number % 3}.so",
        }
        for number in range(count)
        for event, weight in weights.items()
    ]
    schema = TABLES["samples"].schema
    frame = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
    return trace.replace(samples=frame)


@pytest.fixture(scope="module")
def plain(pages: Path) -> Trace:
    return opspan.load(nsys(pages / "host.sqlite"))


@pytest.fixture(scope="module", params=EVENTS)
def trace(request: pytest.FixtureRequest, plain: Trace) -> Trace:
    return sampled(plain, EVENTS[request.param])


def host_of(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of each table of the section."""
    _, parts = page_parts(Subject(trace.analysed))
    tables = {}
    for one in parts["host"]["tables"]:
        names = [column["name"] for column in one["rows"]["columns"]]
        tables[one["by"]] = [dict(zip(names, row, strict=True)) for row in zip(*one["rows"]["values"], strict=True)]
    return tables


def notes_of(trace: Trace) -> list[str]:
    _, parts = page_parts(Subject(trace.analysed))
    return list(parts["host"]["tables"][0]["rows"]["notes"])


def assert_same(trace: Trace) -> None:
    tables = host_of(trace)
    assert tuple(tables) == BY
    for by, shown in tables.items():
        expected = trace.sampled_functions(by).with_columns(
            pl.col(name).fill_null("").replace("", "(unknown)").map_elements(text, return_dtype=pl.String)
            for name in BY[BY.index(by) :]
        )
        assert len(shown) == expected.height > 0
        for mine, row in zip(shown, expected.to_dicts(), strict=True):
            assert mine == {name: row[name] for name in mine}
        # Only columns without a value are left out, and weights where the samples measure time or each counts 1.
        lacking = {name for name in expected.columns if expected[name].count()} - set(shown[0])
        assert lacking <= {"total_samples", "weight", "total_weight", "library"}
        assert "cpu_ns" in shown[0] or "weight" in shown[0] or expected["weight"].equals(expected["samples"])


def test_it_is_the_answer_of_functions(trace: Trace) -> None:
    assert_same(trace)


@pytest.mark.parametrize("name", REAL)
def test_real_files_have_the_figures_of_functions(name: str, traces_dir: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    assert_same(opspan.load(traces_dir / name))


def test_figures_of_the_hardware_are_shown(plain: Trace) -> None:
    rows = host_of(sampled(plain, EVENTS["counts"]))["library"]
    row = next(row for row in rows if row["library"] == "lib0.so")
    assert (row["ipc"], row["llc_misses"], row["cycles"]) == (1.5, 700, 200_000)
    assert row["weight"] == 200_000  # of the cycles, which are counted because no event measures time
    assert "cpu_ns" not in row


def test_the_notes_say_how_many_samples_there_are_and_how_exact_they_are(plain: Trace) -> None:
    trace = sampled(plain, EVENTS["time"])
    notes = notes_of(trace)
    inside = trace.analysed.sample_places["range"].count()
    assert 0 < inside < 300
    assert notes[0].startswith(f"300 samples of the event cpu-clock, {inside / 3:.1f} % of them in ranges; ")
    assert "a share of 10 % is right to within 1.7 points" in notes[0]  # sqrt(0.1 * 0.9 / 300)
    assert any("fewer than 30 samples" in note for note in notes)
    rows = {row["function"]: row for row in host_of(trace)["function"]}
    assert rows["main"]["total_share"] == 1
    assert rows[text(LEAVES[3])]["share"] is None


def test_it_has_a_limited_number_of_rows(plain: Trace) -> None:
    trace = sampled(plain, {None: 1}, MOST_ROWS + 10)
    names = pl.Series([f"main;f{number}" for number in range(MOST_ROWS + 10)]).cast(pl.Categorical)
    trace = trace.replace(samples=trace.samples.with_columns(stack=names, libraries=names))
    assert len(host_of(trace)["function"]) == MOST_ROWS
    assert notes_of(trace)[0].startswith("11 more rows are not in this page")


def test_a_trace_without_samples_has_no_such_section(plain: Trace, trace: Trace) -> None:
    head, parts = page_parts(Subject(plain.analysed))
    names = [section["name"] for section in head["sections"]]
    assert "host" not in {*names, *parts}
    with_it, _ = page_parts(Subject(trace.analysed))
    assert [section["name"] for section in with_it["sections"] if section["name"] != "host"] == names


# --- in a browser


def test_it_filters_and_groups_by_library(browser: Browser, plain: Trace, pages: Path) -> None:
    out = pages / "host.html"
    sampled(plain, EVENTS["time"]).report(out)
    for width in WIDTHS:
        with browser.open(out, width=width) as opened:
            assert_shares(seen_in(opened, "host"), "host")
            functions = opened.at.get_by_role("region", name="Samples by function")
            functions.get_by_text("\\x1b[31m").first.wait_for()  # as printable() has it
            assert opened.at.evaluate("document.documentElement.scrollWidth") <= width
            assert grave_faults(opened) == []
            opened.goto("host?name=spin")
            assert functions.locator("tbody tr").count() == 3  # in three libraries
            opened.at.locator("#section-host").get_by_label("Group by").select_option("library")
            libraries = opened.at.get_by_role("region", name="Samples by library")
            libraries.get_by_role("button", name="Library").click()
            assert libraries.locator("tbody tr td").first.inner_text() == "lib0.so"
