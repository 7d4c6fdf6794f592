"""The section on memory: its figures are those of the analysis, and a window's are those of the events in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import kineto
from opspan.analysis import Analysis
from opspan.analysis.memory_use import operators
from opspan.questions import Options, question
from opspan.views.page import memory
from opspan.views.page.section import Section, Subject
from page.browser import Browser
from page.faults import grave_faults
from views.sources import nsys

MIB = 1 << 20
FIGURES = {
    "calls": "calls",
    "allocation_bytes": "allocation_bytes",
    "allocation_count": "allocation_count",
    "size_increase": "size_increase_bytes",
    "self_allocation_bytes": "self_allocation_bytes",
    "self_allocation_count": "self_allocation_count",
    "self_size_increase": "self_size_increase_bytes",
}


def changed(at: float, size: int, address: int, device: int = 0) -> dict[str, Any]:
    where = {"Device Id": device, "Device Type": int(device >= 0), "Addr": address, "Bytes": size}
    total = {"Total Allocated": 0, "Total Reserved": 512 * MIB} if device >= 0 else {}
    said = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "ts": at}
    return {**said, "pid": kineto.PID, "tid": kineto.MAIN, "args": {**where, **total}}


def written(path: Path, steps: int = 10) -> Path:
    """Each step, 1 ms long, takes 3 MiB in aten::empty within aten::ones and 1 MiB in aten::add, and gives back 3."""
    events: list[Any] = []

    def change(at: float, size: int, address: int, device: int = 0) -> None:
        events.append(changed(at, size, address, device))

    for step in range(steps):
        begin = 1000.0 * (step + 1)
        events.append(kineto.op("aten::ones", kineto.MAIN, begin, 400))
        events.append(kineto.op("aten::empty", kineto.MAIN, begin + 10, 100))
        change(begin + 50, 3 * MIB, 4096 * (2 * step + 1))
        events.append(kineto.op("aten::add", kineto.MAIN, begin + 500, 200))
        change(begin + 550, MIB, 4096 * (2 * step + 2))
        change(begin + 600, -3 * MIB, 4096 * (2 * step + 1))
    change(1900, 64, 7, device=-1)
    return kineto.write(path, kineto.document(events))


def made(analysis: Analysis) -> Section:
    return memory.section(Subject(analysis))


@pytest.fixture(scope="module")
def analysis(pages: Path) -> Analysis:
    return opspan.load(written(pages / "memory.json")).analysed


@pytest.fixture(scope="module")
def page(pages: Path, analysis: Analysis) -> Path:
    out = pages / "memory.html"
    opspan.load(pages / "memory.json").report(out)
    return out


def summed(place: dict[str, Any], is_in: Callable[[int], bool]) -> dict[str | None, dict[str, int]]:
    """Sums over pieces, as the page does."""
    ops = place["ops"]
    sums: dict[str | None, dict[str, int]] = {}
    for row, piece in enumerate(ops["piece"]):
        if is_in(piece):
            of = sums.setdefault(ops["names"][ops["name"][row]], dict.fromkeys(FIGURES, 0))
            for figure in FIGURES:
                of[figure] += ops[figure][row]
    return sums


def check_whole(analysis: Analysis, data: dict[str, Any]) -> None:
    rows = question("memory").rows_of(analysis, Options("op"))
    keys = (
        question("memory")
        .rows_of(analysis, Options("device"))
        .sort("allocated_bytes", descending=True, maintain_order=True)
    )
    for place, device in zip(data["places"], keys["device_id"], strict=True):
        mine = rows.filter(pl.col("device_id").eq_missing(pl.lit(device, dtype=pl.Int32))).to_dicts()
        theirs = {row["op"]: {ours: row[name] for ours, name in FIGURES.items()} for row in mine}
        assert summed(place, lambda _: True) == theirs


def test_all_pieces_together_are_what_opspan_memory_prints(analysis: Analysis) -> None:
    section = made(analysis)
    assert section.data is not None
    assert [place["title"] for place in section.data["places"]] == ["Device 0 (Some GPU)", "Host"]
    check_whole(analysis, section.data)


def test_a_window_is_of_the_events_in_it(analysis: Analysis) -> None:
    data = made(analysis).data
    assert data is not None
    first = int(data["begin_ns"]) + data["first"]
    from_piece, to_piece = 100, 250
    from_ns, to_ns = (first + piece * data["piece"] for piece in (from_piece, to_piece))
    inside = analysis.tables.memory.filter(pl.col("time_ns").is_between(from_ns, to_ns, closed="left"))
    expected = operators(analysis.attributed.ranges, inside.filter(pl.col("device_id") == 0))
    ours = summed(data["places"][0], lambda piece: from_piece <= piece < to_piece)
    for row in expected.to_dicts():
        mine = ours[row["name"]]
        assert {name: row[name] for name in mine if name != "calls"} | {"calls": 0} == mine | {"calls": 0}
    assert 0 < inside.height < analysis.tables.memory.height


def test_curve_blocks_and_peak_are_those_of_the_analysis(analysis: Analysis) -> None:
    data = made(analysis).data
    assert data is not None
    place = data["places"][0]
    peak = analysis.memory_peaks.filter(pl.col("device_id") == 0).to_dicts()[0]
    assert place["peak"]["allocated"] == max(place["curve"]["allocated"]) == peak["allocated_bytes"] == 13 * MIB
    assert int(data["begin_ns"]) + place["peak"]["at"] == peak["time_ns"]
    assert set(place["curve"]["reserved"]) - {None} == {512 * MIB}
    blocks = dict(zip([one["name"] for one in place["blocks"]["columns"]], place["blocks"]["values"], strict=True))
    assert (blocks["op"][0], blocks["around"][0], blocks["bytes"][0]) == ("aten::empty", "aten::ones", 3 * MIB)
    assert blocks["kept_ns"][:10] == [550_000] * 10
    assert blocks["given_ns"][10:] == [None] * 10
    by_op = place["at_peak"][0]["rows"]["values"]
    assert by_op == [["aten::add", "aten::empty"], [10, 1], [10 * MIB, 3 * MIB]]


def test_what_took_as_much_at_the_peak_stands_in_the_order_of_the_trace(tmp_path: Path) -> None:
    names = [f"aten::op_{number * 37 % 100}" for number in range(100)]
    events = [event for at, name in enumerate(names) for event in (
        kineto.op(name, kineto.MAIN, 1000.0 + 10 * at, 9), changed(1005.0 + 10 * at, 64, 4096 * (at + 1)))]  # fmt: skip
    data = made(opspan.load(kineto.write(tmp_path / "ties.json", kineto.document(events))).analysed).data
    assert data is not None
    assert data["places"][0]["at_peak"][0]["rows"]["values"][0] == names


def test_the_curve_is_thinned_and_keeps_least_and_most(tmp_path: Path) -> None:
    found = opspan.load(written(tmp_path / "many.json", steps=2_000)).analysed
    data = made(found).data
    assert data is not None
    curve, rows = data["places"][0]["curve"], found.memory_curve.filter(pl.col("device_id") == 0)
    assert len(curve["at"]) < 5 * memory.PIECES < rows.height
    known = set(zip(rows["time_ns"] - int(data["begin_ns"]), rows["allocated_bytes"], strict=True))
    assert set(zip(curve["at"], curve["allocated"], strict=True)) < known
    assert max(curve["allocated"]) == rows["allocated_bytes"].max()
    assert "largest of 4,000 blocks" in data["places"][0]["blocks"]["notes"][0]


def test_too_many_figures_are_of_fewer_pieces(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_CELLS", 20)
    data = made(analysis).data
    assert data is not None
    assert data["pieces"] < memory.PIECES
    assert sum(len(place["ops"]["piece"]) for place in data["places"]) <= 20
    check_whole(analysis, data)


def test_without_memory_it_says_what_records_it(tmp_path: Path) -> None:
    section = made(opspan.load(nsys(tmp_path / "none.sqlite")).analysed)
    assert section.data is None
    assert section.command.startswith("nsys profile --cuda-memory-usage=true")


@pytest.mark.slow
def test_a_recorded_run_has_the_figures_of_opspan_memory(traces_dir: Path) -> None:
    path = traces_dir / "kineto" / "resnet50_memory_without_category.pt.trace.json.gz"
    found = opspan.load(path).analysed
    data = made(found).data
    assert data is not None
    check_whole(found, data)


# --- in a browser


def test_dragging_selects_a_window_and_the_tables_follow(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("memory")
        ops = opened.at.get_by_role("region", name="Memory by op").locator("tbody tr")
        assert ops.filter(has_text="aten::empty").locator("td").nth(1).inner_text() == "10"

        area = opened.at.locator("#section-memory .brush .overlay").bounding_box()
        assert area
        opened.at.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + 50)
        opened.at.mouse.down()
        opened.at.mouse.move(area["x"] + 0.5 * area["width"], area["y"] + 50)
        opened.at.mouse.up()

        opened.at.get_by_text("The tables below are of 1.").wait_for()
        assert float(opened.at.get_by_label("From (ms)").input_value()) == pytest.approx(2.9, abs=0.1)
        assert ops.filter(has_text="aten::empty").locator("td").nth(1).inner_text() == "2"
        assert opened.at.locator("#section-memory .brush .selection").bounding_box()["width"] > 100
        opened.at.get_by_role("button", name="Whole time").click()
        assert ops.filter(has_text="aten::empty").locator("td").nth(1).inner_text() == "10"


def test_a_window_needs_no_mouse_and_leads_anywhere(browser: Browser, page: Path, analysis: Analysis) -> None:
    with browser.open(page) as opened:
        opened.goto("memory")
        opened.at.get_by_label("to (ms)").fill("1.9")
        opened.at.keyboard.press("Tab")
        blocks = opened.at.get_by_role("region", name="Blocks of memory")
        assert blocks.locator("tbody tr").count() == 4
        begin = int(analysis.attributed.ranges["start_ns"].min())  # type: ignore[arg-type]
        opened.goto(f"memory?from={begin + 3_000_000}&to={begin + 3_900_000}")
        assert float(opened.at.get_by_label("From (ms)").input_value()) == pytest.approx(3, abs=0.03)
        assert blocks.locator("tbody tr").count() == 2


def test_it_fits_a_narrow_window_and_keeps_nobody_out(browser: Browser, page: Path) -> None:
    with browser.open(page, width=390, scheme="dark") as opened:
        opened.goto("memory")
        assert opened.at.evaluate("document.documentElement.scrollWidth") <= 390
        assert grave_faults(opened) == []


def test_another_device_has_its_own(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("memory")
        opened.at.get_by_label("Memory of", exact=False).and_(opened.at.locator("select")).select_option("Host")
        opened.at.get_by_role("img", name="Memory of Host: 64 B at most").wait_for()
        assert opened.at.get_by_role("region", name="Blocks of memory").locator("tbody tr").count() == 1
