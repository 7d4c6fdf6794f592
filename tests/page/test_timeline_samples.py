"""Samples of processors in the timeline: the data of their lanes is that of the table, and the page shows it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from analysis.frames import ranges, table
from opspan.analysis import Analysis
from opspan.tables import Metadata, Tables
from opspan.trace import Trace
from opspan.views.page import timeline, timeline_samples
from opspan.views.page.section import Subject, as_json, packed
from page.browser import Browser, Opened
from page.timeline_read import samples_of, shapes_of, summed

MAIN, WORKER = 1, 7
BEGIN = 10_000
REAL = (
    "nsys/torch_lm_2025.sqlite",
    "nsys/mpi_saxpy_2022.sqlite",
    "vtune/r010hs_tasks/r010hs",
    "vtune/r000cc_2015",
    "vtune/r000hs_2022/r000hs",
)
OPS = ranges(
    {"name": "step", "kind": "op", "tid": MAIN, "start_ns": BEGIN, "end_ns": BEGIN + 9_000},
    {"name": "aten::mm", "kind": "op", "tid": MAIN, "start_ns": BEGIN + 2_000, "end_ns": BEGIN + 5_000},
)


def sample(time_ns: int, stack: str | None, libraries: str | None = None, **more: Any) -> dict[str, Any]:
    return {"time_ns": time_ns, "tid": MAIN, "weight": 1, "stack": stack, "libraries": libraries, **more}


def tables(*samples: dict[str, Any], **frames: pl.DataFrame) -> Tables:
    return Tables((Metadata("nsys"),), samples=table("samples", samples, rank=0, pid=MAIN), **frames)


def data_of(found: Analysis) -> dict[str, Any]:
    data = timeline.section(Subject(found)).data
    assert data is not None
    read: dict[str, Any] = json.loads(as_json(data))
    return read


def steady(count: int) -> list[dict[str, Any]]:
    """Samples in which seven functions of three libraries take turns, on two threads."""
    return [
        sample(
            BEGIN + 10 * at,
            f"main;f{at * at % 7}",
            f"/bin/a;/lib/lib{at * at % 7 % 3}.so",
            tid=(MAIN, WORKER)[at % 3 == 0],
        )
        for at in range(count)
    ]


def test_every_sample_is_a_point_with_all_that_the_table_says() -> None:
    rows = [
        sample(BEGIN + 2_500, "main;gemm", "/bin/python;/opt/lib/libblas.so", weight=7),
        sample(BEGIN + 100, "gemm", "/opt/lib/libblas.so"),
        sample(BEGIN + 5_000, "main;0x7f00", "/bin/python;/lib/libc.so.6", weight=None),
        sample(BEGIN - 50, None),
        sample(BEGIN + 9_500, "[Broken backtraces];spin", "[Broken backtraces];/lib/libomp.so", tid=WORKER),
    ]
    data = data_of(Analysis(tables(*rows, ranges=OPS)))

    points = {point["time_ns"] - BEGIN: point for point in samples_of(data)}

    blas, spin, python = ("gemm", "libblas.so"), ("spin", "libomp.so"), ("main", "python")
    unresolved = ("(unresolved) in libc.so.6", "libc.so.6")
    assert {at: (point["function"], point["stack"], point["op"], point["weight"]) for at, point in points.items()} == {
        -50: (None, [None], None, 1),
        100: (blas, [blas], "step", 1),
        2_500: (blas, [blas, python], "aten::mm", 7),
        5_000: (unresolved, [unresolved, python], "step", None),
        9_500: (spin, [spin, None], None, 1),
    }
    assert {data["lanes"][point["lane"]]["title"] for point in points.values()} == {"thread 1", "thread 7"}
    assert data["begin"] == str(BEGIN - 50)
    assert len(shapes_of(data)) == len(OPS)


def test_a_trace_without_samples_has_nothing_of_them() -> None:
    assert "samples" not in as_json(data_of(Analysis(tables(ranges=OPS))))


def test_each_event_has_a_row_and_the_one_of_time_is_first() -> None:
    events = ("INST_RETIRED.ANY", "CPU_CLK_UNHALTED.THREAD", "INST_RETIRED.ANY")
    rows = [sample(BEGIN + at, "f", event=event, weight=100 + at) for at, event in enumerate(events)]
    worker = sample(BEGIN + 9, "f", event=events[0], tid=WORKER, weight=5)
    data = data_of(Analysis(tables(*rows, worker, ranges=OPS)))

    lanes = [lane for lane in data["lanes"] if lane["table"] == "samples"]

    assert [event["name"] for event in data["samples"]["events"]] == [events[1], events[0]]
    assert [(lane["rows"], lane["shapes"], lane["events"]) for lane in lanes] == [
        ([0, 1], [1, 2], [0, 1]),
        ([0], [1], [1]),
    ]
    assert [lane["shows"] for lane in lanes] == [f"samples: {events[1]}, {events[0]}", f"samples: {events[0]}"]
    assert Counter((point["event"], point["weight"]) for point in samples_of(data)) == Counter(
        (row["event"], row["weight"]) for row in (*rows, worker)
    )


def test_events_past_the_most_are_counted() -> None:
    more = timeline_samples.MOST_EVENTS + 2
    rows = [sample(BEGIN + at, "f", event=f"e{event}") for event in range(more) for at in range(10 + more - event)]
    data = data_of(Analysis(tables(*rows)))
    lost = sum(10 + more - event for event in range(timeline_samples.MOST_EVENTS, more))
    assert f"{lost} samples of 2 events are not drawn: those with the fewest samples" in data["notes"]
    assert len(samples_of(data)) == len(rows) - lost


@pytest.mark.parametrize("most", [30, 200, 999])
def test_samples_past_the_most_are_drawn_together_and_none_is_lost(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = steady(2_000)
    whole = samples_of(data_of(Analysis(tables(*rows, ranges=OPS))))
    monkeypatch.setattr(timeline_samples, "MOST_POINTS", most)
    data = data_of(Analysis(tables(*rows, ranges=OPS)))
    points = samples_of(data)
    merged = data["samples"]["merged"]
    within = merged["within_ns"]

    # A twin in loops: those of a thread and a library in one stretch are one point.
    def twin(length: int) -> dict[Any, list[Any]]:
        of: dict[Any, list[Any]] = {}
        for point in sorted(whole, key=lambda point: point["time_ns"]):
            key = (point["lane"], point["function"][1], (point["time_ns"] - BEGIN) // length)
            of.setdefault(key, []).append(point)
        return of

    groups = twin(within)
    assert len(points) == len(groups) <= most < len(twin(within // 2))
    for point in points:
        group = groups[point["lane"], point["function"][1], (point["time_ns"] - BEGIN) // within]
        names = Counter(one["function"] for one in group)
        assert point["time_ns"] == group[0]["time_ns"]
        assert point["time_ns"] + point["length_ns"] == group[-1]["time_ns"]
        assert point["count"] == point["weight"] == len(group)
        assert point["own"] == names[point["function"]] == max(names.values())
        ops = {one.get("op") for one in group}
        assert {point.get("op")} == (ops if len(ops) == 1 else {None})
    assert merged["of"] == sum(point["count"] for point in points) == 2_000
    assert merged["samples"] == sum(point["count"] for point in points if point["count"] > 1)
    # Those that have no point of their function are counted.
    hidden = Counter(one["function"][0] for one in whole)
    for point in points:
        hidden[point["function"][0]] -= point["own"]
    told = data["samples"]["hidden"]
    counts = zip(summed(told["name"]), told["count"], strict=True)
    assert {data["samples"]["names"][name]: count for name, count in counts} == +hidden


def test_threads_that_have_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_samples, "MOST_POINTS", 50)
    often = [sample(BEGIN + at, "often", tid=WORKER) for at in range(9)]
    data = data_of(Analysis(tables(*often, *(sample(BEGIN, "f", tid=100 + at) for at in range(100)))))
    points = samples_of(data)
    assert len(points) == 50
    assert max(point["count"] for point in points) == 9
    assert "51 samples of libraries with few samples are not drawn" in data["notes"]
    assert len([lane for lane in data["lanes"] if lane["ranges"]]) == 50


def test_samples_take_no_more_of_a_page_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_samples, "MOST_BYTES", 20_000)
    rows = [
        sample(BEGIN + at, ";".join(f"{(at + depth) * 2654435761 % 2**32:x}" for depth in range(30)))
        for at in range(3_000)
    ]
    data = data_of(Analysis(tables(*rows)))
    in_page = packed({"data": data["samples"], "details": data["details"]["samples"]})
    assert len(in_page) <= 20_000
    assert any(point["cut"] for point in samples_of(data))
    # The innermost functions are those that are left.
    for point in samples_of(data):
        assert point["stack"][0] == point["function"]
        assert len(point["stack"]) + point["cut"] == 30


def test_threads_with_nothing_but_samples_are_folded_away() -> None:
    data = data_of(Analysis(tables(*steady(9), ranges=OPS)))
    quiet = {lane["title"]: data["groups"][lane["group"]]["quiet"] for lane in data["lanes"]}
    assert quiet == {"thread 1": False, "thread 7": True}


def test_a_trace_of_samples_alone_is_a_timeline() -> None:
    rows = [row for row in steady(9) if row["tid"] == WORKER]
    data = data_of(Analysis(tables(*rows)))
    assert len(samples_of(data)) == 3
    assert [group["quiet"] for group in data["groups"]] == [False]


def test_samples_without_a_time_are_said() -> None:
    rows = [*steady(3), sample(BEGIN, "f") | {"time_ns": None}]
    assert "1 samples are not drawn, for they have no time" in data_of(Analysis(tables(*rows)))["notes"]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_samples_of_real_files_are_those_of_the_table(name: str, traces_dir: Path) -> None:
    found = opspan.load(traces_dir / name).analysed
    samples, complete = found.tables.samples, found.complete
    data = data_of(found)
    names = complete.ranges["name"].cast(pl.String).gather(found.sample_places["range"])
    expected = Counter(
        (time_ns, event, weight, op)
        for time_ns, event, weight, op in zip(
            samples["time_ns"], samples["event"].cast(pl.String), samples["weight"], names, strict=True
        )
    )
    points = samples_of(data)
    assert Counter((p["time_ns"], p["event"], p["weight"], p.get("op")) for p in points) == expected
    for point, stack in zip(
        sorted(points, key=lambda point: (point["time_ns"], point["lane"])),
        samples.sort("time_ns", maintain_order=True)["stack"].cast(pl.String),
        strict=True,
    ):
        assert len(point["stack"]) + point["cut"] == len(stack.split(";")) or samples["time_ns"].is_duplicated().any()
    sizes = len(packed({"samples": data["samples"], "details": data["details"]["samples"]}))
    assert sizes <= 2_000 + 20 * samples.height


@pytest.fixture(scope="module")
def page(pages: Path) -> Path:
    rows = [
        *(sample(BEGIN + 1_000 * at, "main;spin", "/bin/python;/lib/libomp.so", tid=WORKER) for at in range(9)),
        sample(BEGIN + 3_000, "main;run;gemm", "/bin/python;/bin/python;/opt/libblas.so", weight=25_000_000),
        sample(BEGIN + 3_001, "main;copy", "/bin/python;/lib/libc.so.6", weight=10_000_000),
        sample(BEGIN + 8_000, "main;copy", "/bin/python;/lib/libc.so.6", weight=10_000_000),
    ]
    trace = Trace.of(tables(*(row | {"event": "cpu-clock"} for row in rows), ranges=OPS))
    trace.report(pages / "samples.html")
    return pages / "samples.html"


def text(opened: Opened, selector: str) -> str:
    return str(opened.at.locator(f".timeline {selector}").inner_text())


def colours_at(opened: Opened, time_ns: int, lane: str) -> set[int]:
    """Returns the colours of the column of pixels at a time, in a lane, as numbers. Shades of grey are left out."""
    box = opened.at.locator(lane).bounding_box()
    column: list[int] = opened.at.evaluate(
        """([time, top, height]) => {
            const canvas = document.querySelector("canvas.shapes");
            const box = canvas.getBoundingClientRect();
            const [from, to] = /from=(\\d+)&to=(\\d+)/.exec(location.hash).slice(1).map(Number);
            const x = Math.floor((time - from) / (to - from) * box.width);
            const other = document.createElement("canvas");
            [other.width, other.height] = [1, height];
            const context = other.getContext("2d", { willReadFrequently: true });
            context.drawImage(canvas, -x, box.top - top);
            return [...new Uint32Array(context.getImageData(0, 0, 1, height).data.buffer)];
        }""",
        [time_ns, box["y"], box["height"]],
    )
    parts = {pixel: [pixel >> shift & 255 for shift in (0, 8, 16)] for pixel in column}
    return {pixel for pixel, (red, green, blue) in parts.items() if max(red, green, blue) - min(red, green, blue) > 40}


def test_a_sample_says_what_is_known_of_it(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("timeline?name=gemm")
        assert text(opened, ".panel h3") == "gemm"
        assert text(opened, "[role=status]") == "1 of 1"
        shown = text(opened, ".panel dl")
        assert re.search(r"Taken after\s+3.000 µs of the trace", shown)
        assert re.search(r"Library\s+libblas.so", shown)
        assert re.search(r"Event\s+cpu-clock", shown)
        assert re.search(r"Weight\s+25.000\s?ms", shown)
        assert re.search(r"In\s+aten::mm", shown)
        assert "Duration" not in shown
        stack = opened.at.locator(".timeline .panel .stack li").all_inner_texts()
        assert stack == ["gemm libblas.so", "run python", "main python"]
        opened.at.get_by_role("link", name="In the table of functions").click()
        assert "gemm" in opened.at.locator("#section-host table").inner_text()


def test_searching_finds_samples_of_threads_that_are_folded_away(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("timeline")
        lanes = opened.at.locator(".timeline .names .lane")
        before = lanes.count()
        opened.at.get_by_label("Find").fill("spin")
        assert text(opened, "[role=status]") == "9 found"
        opened.at.get_by_role("button", name="Next").click()
        assert re.search(r"In\s+no range of its thread", text(opened, ".panel dl"))
        assert lanes.count() > before


def test_keys_go_from_a_range_to_its_samples(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("timeline?name=aten::mm")
        canvas = opened.at.locator(".timeline canvas.shapes")
        canvas.press("j")
        assert text(opened, ".panel h3") == "gemm"
        canvas.press("n")
        assert text(opened, ".panel h3") == "copy"
        canvas.press("k")
        assert text(opened, ".panel h3") == "aten::mm"


def test_samples_in_one_column_of_pixels_are_added_up(browser: Browser, page: Path) -> None:
    lane = ".timeline .names .lane:has-text('samples')"
    with browser.open(page) as opened:
        opened.goto(f"timeline?from={BEGIN}&to={BEGIN + 9_000}")
        opened.at.wait_for_timeout(100)
        both, one, beside = (colours_at(opened, BEGIN + at, lane) for at in (3_000, 8_000, 8_060))
        assert len(both) == 2
        assert len(one) == 1
        assert one < both
        assert not beside  # a sample has no length
        canvas = opened.at.locator(".timeline canvas.shapes").bounding_box()
        y = opened.at.locator(lane).bounding_box()["y"] + 10
        opened.at.mouse.move(canvas["x"] + canvas["width"] / 3, y)
        assert text(opened, ".tip") == "2 samples: 1 in libblas.so, 1 in libc.so.6"
        opened.at.mouse.move(canvas["x"] + canvas["width"] * 8 / 9, y)
        assert text(opened, ".tip") == "sample: copy in libc.so.6"


def test_a_real_report_shows_samples(browser: Browser, pages: Path, traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / REAL[0])
    trace.report(pages / "real.html")
    samples = trace.samples
    count = samples["stack"].cast(pl.String).str.split(";").list.last().eq("blas_thread_server").sum()
    with browser.open(pages / "real.html") as opened:
        opened.goto("timeline?name=blas_thread_server")
        assert text(opened, "[role=status]") == f"1 of {count:,}"
        assert re.search(r"Library\s+libscipy_openblas", text(opened, ".panel dl"))
        assert "Samples in libtorch_cpu.so" in text(opened, ".legend")
