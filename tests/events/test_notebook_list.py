"""Lists of events in a notebook and in IPython: the first events, and how many more there are."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from html_tables import Shown
from opspan.events import DeviceType, EventList, FunctionEvent
from opspan.events.column_event import ColumnEvent
from opspan.tables import Metadata
from opspan.trace import Trace
from test_printable import OBEYED

COUNT = 5_000


class Printer:
    """The printer that IPython passes to `_repr_pretty_`."""

    def __init__(self) -> None:
        self.said = ""

    def text(self, text: str) -> None:
        self.said += text


def pretty(events: EventList[Any]) -> str:
    printer = Printer()
    events._repr_pretty_(printer, cycle=False)
    return printer.said


@pytest.fixture
def events() -> EventList:
    """A list over columns: ops one after the other, of 25 names, with kernels."""
    rows = pl.DataFrame({"id": range(COUNT)}).with_columns(
        name=pl.format("aten::op{}", pl.col("id") % 25),
        kind=pl.lit("op"),
        start_ns=pl.col("id") * 1_000,
        end_ns=pl.col("id") * 1_000 + 900 - pl.col("id") % 25,
        pid=pl.lit(1),
        tid=pl.lit(1),
    )
    work = rows.select(
        "start_ns", "end_ns", "pid", name=pl.lit("gemm"), kind=pl.lit("kernel"), device_id=0, named_range_id="id"
    )
    return Trace((Metadata("test"),), ranges=rows, work=work).events()


def text_cells(text: str) -> list[list[str]]:
    """The words of each line between the second and the third rule of a table."""
    rules = [number for number, line in enumerate(text.splitlines()) if line.startswith("----")]
    return [line.split() for line in text.splitlines()[rules[1] + 1 : rules[2]] if line.strip()]


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("of_objects", [False, True])
def test_its_cells_are_those_of_its_table(averaged: bool, of_objects: bool, events: EventList) -> None:
    listed = EventList(list(events), use_device="cuda") if of_objects else events
    listed = listed.key_averages() if averaged else listed
    found = Shown(listed._repr_html_())

    text = listed.table(row_limit=10)
    assert [" ".join(cells).split() for cells in found.cells] == text_cells(text)
    assert " ".join(cell.text for cell in found.titles).split() == text.splitlines()[1].split()
    assert found.sentences[0] == ("26 averages" if averaged else "10,000 events")
    assert f"{len(listed) - 10:,} more: .table() has 100 of them, .table(row_limit=-1) all" in found.sentences
    assert [cell.attributes["style"] for cell in found.rows[-1]][:2] == ["text-align: left", "text-align: right"]


def test_ipython_gets_the_same_lines_as_text(events: EventList) -> None:
    assert (
        pretty(events) == f"{events.table(row_limit=10)}9,990 more: .table() has 100 of them, .table(row_limit=-1) all"
    )
    assert pretty(EventList()) == "[]"


def test_a_terminal_is_told_nothing_by_a_name() -> None:
    said = pretty(EventList([FunctionEvent(1, "a\x1b[31m\u202eb", 1, 0, 10)]))
    assert r"a\x1b[31m\u202eb" in said
    assert not OBEYED.search(said)


def test_no_event_is_made_that_is_not_shown(events: EventList, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    build = ColumnEvent.of
    monkeypatch.setattr(ColumnEvent, "of", lambda rows, at: made.append(at) or build(rows, at))

    events._repr_html_()
    pretty(events)

    assert len(made) == 10


def test_without_events_it_says_so() -> None:
    assert Shown(EventList()._repr_html_()).sentences == ["0 events"]


@pytest.mark.parametrize(("depth", "lines"), [(0, 1), (3, 3)])
def test_a_stack_is_shown_where_events_were_summed_by_it(depth: int, lines: int) -> None:
    event = FunctionEvent(1, "aten::mm", 1, 0, 10, stack=[f"f{number}" for number in range(500)])
    listed = EventList([event])
    shown = listed.key_averages(group_by_stack_n=depth) if depth else listed
    found = Shown(shown._repr_html_())
    assert [cells[-1] for cells in found.cells] == [f"f{number}" for number in range(lines)]


def test_what_makes_a_list_no_table_is_said() -> None:
    gemm = FunctionEvent(2, "gemm", 1, 0, 10, use_device="cuda", device_type=DeviceType.CUDA)
    listed = EventList([FunctionEvent(1, "aten::mm", 1, 0, 10), gemm])
    said = "The list cannot be shown. RuntimeError: use_device is None, but there is device performance data."
    assert Shown(listed._repr_html_()).sentences == [said]
    assert pretty(listed) == said
