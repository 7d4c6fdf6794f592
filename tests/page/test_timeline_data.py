"""The data of the timeline: everything in the tables is on the right lanes, and no more than a page can hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
from analysis.frames import range_rows, ranges, table
from builders import training_files
from builders.training_plan import Plan
from opspan import native
from opspan.analysis import Analysis
from opspan.analysis.autograd import BY_NESTING
from opspan.analysis.nest import nest
from opspan.tables import Metadata, Tables
from opspan.views.page import timeline, timeline_lanes
from opspan.views.page.section import Subject, as_json, packed
from opspan.views.page.timeline import MOST_ROWS
from opspan.views.page.timeline_counters import counters
from page.timeline_read import shapes_of, summed
from properties import property_of
from views.sources import HOSTILE, capture, nsys

TABLES = ("ranges", "calls", "work", "functions")


def analysed(**frames: pl.DataFrame) -> Analysis:
    return Analysis(Tables((Metadata("nsys"),), **frames))


def data_of(analysis: Analysis) -> dict[str, Any]:
    data = timeline.section(Subject(analysis)).data
    assert data is not None
    read: dict[str, Any] = json.loads(as_json(data))
    return read


def training(folder: Path) -> Analysis:
    return training_files.load(folder, Plan(ranks=2, steps=3, item_per_step=True)).analysed


def of_nsys(folder: Path) -> Analysis:
    return opspan.load(nsys(folder / "a.sqlite")).analysed


def of_capture(folder: Path) -> Analysis:
    return opspan.load(capture(folder / "a.opspan")).analysed


SOURCES = (training, of_nsys, of_capture)


@pytest.mark.parametrize("source", SOURCES)
def test_every_row_of_every_table_is_a_shape_at_its_time(source: Callable[[Path], Analysis], tmp_path: Path) -> None:
    found = source(tmp_path)
    shapes = shapes_of(data_of(found))
    for name in TABLES:
        frame = getattr(found.complete, name)
        end = pl.coalesce("end_ns", "start_ns") if name == "ranges" else pl.col("end_ns")
        expected = frame.select("start_ns", end, pl.col("name").cast(pl.String))
        shown = shapes.filter(pl.col("table") == name).select("start_ns", "end_ns", "name")
        hostile = pl.col("name").str.replace(HOSTILE, HOSTILE.encode("unicode_escape").decode(), literal=True)
        simple = expected.filter(pl.col("name") != HOSTILE).sort(pl.all())
        assert shown.filter(~pl.col("name").str.contains("script")).sort(pl.all()).equals(simple), name
        assert len(shown) == len(expected.with_columns(hostile))


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_drawn_together_adds_up(
    source: Callable[[Path], Analysis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = source(tmp_path)
    whole = shapes_of(data_of(found))
    monkeypatch.setattr(timeline, "MOST_SHAPES", len(whole) // 3)
    data = data_of(found)
    shapes = shapes_of(data)
    sums = [pl.col("count").sum(), pl.col("busy_ns").sum()]
    assert len(shapes) <= max(len(whole) // 3, whole.select("lane", "row").n_unique())
    by_row = ["lane", "row"]
    assert shapes.group_by(by_row).agg(sums).sort(by_row).equals(whole.group_by(by_row).agg(sums).sort(by_row))
    assert [lane["ranges"] for lane in data["lanes"]] == whole.group_by("lane").agg(sums).sort("lane")[
        "count"
    ].to_list()
    assert data["merged"] == {
        "under_ns": data["merged"]["under_ns"],
        "ranges": shapes.filter(pl.col("count") > 1)["count"].sum(),
        "of": len(whole),
    }
    assert data["merged"]["ranges"]
    # Shapes that are long enough stand for one row.
    long = pl.col("end_ns") - pl.col("start_ns") >= data["merged"]["under_ns"]
    alone = shapes.filter(pl.col("count") == 1, long).drop("count", "busy_ns")
    assert alone.sort(pl.all()).equals(whole.filter(long).drop("count", "busy_ns").sort(pl.all()))
    # Names that are hidden are counted.
    names = Counter(whole["name"]) - Counter(shapes.filter(pl.col("count") == 1)["name"])
    hidden = zip(summed(data["hidden"]["name"]), data["hidden"]["count"], strict=True)
    assert {data["names"][name]: count for name, count in hidden} == names


lengths = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 8, 30, 400])
places = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.tuples(lengths, lengths), max_size=12), st.booleans()), max_size=4
)


@property_of(places, st.integers(1, 20), few=40, many=1000)
def test_merging_is_that_of_its_twin_in_loops(made: list[Any], most: int) -> None:
    rows = []
    for number, (_, spans, is_crowded) in enumerate(made):
        start = 0
        for gap, length in spans:
            start += gap
            rows.append((number, start, length, is_crowded))
            # On a crowded row the next may begin before this one is over.
            start += 0 if is_crowded else length
    schema = {"place": pl.UInt32, "start_ns": pl.Int64, "length_ns": pl.Int64, "is_crowded": pl.Boolean}
    found = native.blocks(pl.DataFrame(rows, schema=schema, orient="row"), most)
    under_ns = found["under_ns"][0] if rows else 0
    block = [number for number, count in enumerate(found["count"]) for _ in range(count)]
    assert found["first"].to_list() == [block.index(number) for number in range(found.height)]
    for number, (first, longest, count, until, busy) in enumerate(found.drop("under_ns").rows()):
        some = rows[first : first + count]
        assert max(row[2] for row in some) == rows[longest][2]
        assert longest == next(at for at in range(first, len(rows)) if rows[at][2] == rows[longest][2]), number
        assert until == max(start + length for _, start, length, _ in some) - rows[first][1]
        assert busy == len({time for _, start, length, _ in some for time in range(start, start + length)})
    lowest = [0, *(2**power for power in range(62))]
    tried = [(length, merged_in_loops(rows, length)) for length in lowest]
    if len(rows) <= most and not any(row[3] for row in rows):
        assert (under_ns, block) == (0, list(range(len(rows))))
        return
    fits = [length for length, blocks in tried if not blocks or blocks[-1] < most]
    assert under_ns == (fits[0] if fits else lowest[-1])
    assert block == dict(tried)[under_ns]


def merged_in_loops(rows: list[tuple[int, int, int, bool]], under_ns: int) -> list[int]:
    blocks: list[int] = []
    until = 0
    for at, (place, start, length, is_crowded) in enumerate(rows):
        is_short = is_crowded or length < under_ns
        begins = True
        if at and rows[at - 1][0] == place:
            _, before, last, was_crowded = rows[at - 1]
            was_short = was_crowded or last < under_ns
            width = 4 * max(1, under_ns)
            is_same = start // width == before // width or start < until
            begins = not (is_short and was_short and is_same)
        else:
            until = 0
        until = max(until, start + length)
        blocks.append((blocks[-1] if blocks else -1) + begins)
    return blocks


spans = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=40)


@property_of(spans, few=40, many=1000)
def test_no_two_shapes_of_a_row_overlap_and_what_nests_stands_below(made: list[tuple[int, int, int]]) -> None:
    schema = {"lane": pl.UInt32, "start_ns": pl.Int64, "length_ns": pl.Int64}
    shapes = pl.DataFrame(made, schema=schema, orient="row")
    placed = native.places(shapes, MOST_ROWS)
    assert placed["place"].is_sorted()
    assert placed.select("shape", lane=pl.col("place") // MOST_ROWS).equals(
        placed.select("shape", lane=shapes["lane"].gather(placed["shape"]))
    )
    assert placed.select("start_ns", "length_ns").equals(shapes.select("start_ns", "length_ns")[placed["shape"]])
    assert placed["is_crowded"].to_list() == (placed["place"] % MOST_ROWS == MOST_ROWS - 1).to_list()
    within = placed.select("place", "start_ns", "shape")
    assert within.equals(within.sort("place", "start_ns", "shape"))
    rows = (placed.sort("shape")["place"] % MOST_ROWS).to_list()
    for one, (lane, start, length) in enumerate(made):
        for other in range(one):
            at, begin, took = made[other]
            if at == lane and rows[one] == rows[other] < MOST_ROWS - 1:
                assert start + length <= begin or begin + took <= start
    nested = nest(ranges(*(("a", start, start + length) for _, start, length in made if length)))
    if not nested["overlaps"].any() and len({lane for lane, *_ in made}) == 1 and all(row[2] for row in made):
        assert rows == nested["depth"].to_list()


def test_more_at_once_than_there_are_rows_is_drawn_together() -> None:
    # Each begins in the one before and ends after it: none nests, and there are more than layers.
    made = ranges(*((f"r{number}", 10 * number, 10 * number + 5_000) for number in range(300)))
    data = data_of(analysed(ranges=made))
    shapes = shapes_of(data)
    assert shapes["count"].sum() == 300
    assert shapes["count"].max() > 200
    assert data["merged"]["under_ns"] == 0
    assert (shapes["busy_ns"] <= shapes["end_ns"] - shapes["start_ns"]).all()


@property_of(range_rows(), few=30, many=500)
def test_nothing_is_lost_whatever_the_times(rows: list[dict[str, Any]]) -> None:
    found = analysed(ranges=table("ranges", [row | {"name": "a", "kind": "op"} for row in rows]))
    section = timeline.section(Subject(found))
    timed = found.complete.ranges["start_ns"].count()
    if section.data is None:
        assert timed == 0
        return
    as_json(section.data)
    assert sum(lane["ranges"] for lane in section.data["lanes"] if lane["table"] == "ranges") == timed
    left_out = found.complete.ranges["start_ns"].null_count()
    assert any(f"{left_out} ranges" in note for note in section.data["notes"]) == bool(left_out)


def test_times_past_2_to_the_53_stay_exact() -> None:
    begin = 2**62 + 1
    made = ranges(("whole", begin, begin + 1_000), ("part", begin + 3, begin + 10), ("odd", begin + 20, begin + 15))
    shapes = shapes_of(data_of(analysed(ranges=made)))
    assert shapes.select("name", "start_ns", "end_ns", "form").rows() == [
        ("whole", begin, begin + 1_000, ""),
        ("part", begin + 3, begin + 10, ""),
        ("odd", begin + 20, begin + 20, "backwards"),
    ]


def test_calls_that_did_not_return_are_open_until_the_trace_ends() -> None:
    calls = table("calls", [{"name": "a", "start_ns": 5}, {"name": "b", "start_ns": 7, "end_ns": 90}], rank=0, pid=1)
    shapes = shapes_of(data_of(analysed(calls=calls)))
    assert shapes.filter(pl.col("name") == "a").select("start_ns", "end_ns", "form").rows() == [(5, 90, "open")]


def test_lanes_past_the_most_are_counted() -> None:
    made = ranges(*({"name": "a", "tid": tid, "start_ns": tid, "end_ns": tid + 5} for tid in range(10_000)))
    data = data_of(analysed(ranges=made))
    assert len(data["lanes"]) == timeline_lanes.MOST_LANES
    assert "9,000 more lanes, of 9,000 ranges together, are not drawn: those of the fewest" in data["notes"]


def test_lanes_of_values_past_the_most_are_counted() -> None:
    # The counters with the most values are drawn, the most first; of as many, the first.
    values = [(f"c{number}", at) for number in range(50) for at in range(1 + number % 10)]
    rows = [{"name": name, "domain": None, "time_ns": at, "value": float(at)} for name, at in values]
    work = [{"kind": "kernel", "device_id": device, "start_ns": 1, "end_ns": 5} for device in range(30)]
    found = analysed(
        counters=table("counters", rows, rank=0, pid=1), work=table("work", work, rank=0, pid=1, is_overhead=False)
    )

    lanes, notes = counters(found, 0, 10)

    drawn = [lane["title"] for lane in lanes if lane["kind"] == "counter"]
    assert drawn == [f"c{number}" for size in (9, 8, 7, 6, 5) for number in range(size, 50, 10)][:24]
    assert [lane["device"] for lane in lanes if lane["kind"] == "utilisation"] == list(range(24))
    assert "26 more lanes of counters are not drawn, those of the fewest values" in notes
    assert "6 more lanes of utilisation are not drawn, those of the highest numbers" in notes


def test_a_page_has_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number * 2654435761 % 2**32:x}" * 40 for number in range(5_000)]
    made = ranges(*((name, 10 * at, 10 * at + 5) for at, name in enumerate(names)))
    monkeypatch.setattr(timeline, "MOST_BYTES", 60_000)
    data = data_of(analysed(ranges=made))
    assert len(packed(data)) <= 60_000
    assert shapes_of(data)["count"].sum() == 5_000


numbers = st.lists(st.integers(-(10**9), 10**9), max_size=50)


@property_of(numbers, few=30, many=500)
def test_what_need_not_be_measured_is_no_larger_than_is_said(made: list[int]) -> None:
    data = {"names": ["x" * (number % 90) for number in made], "at": made, "begin": "0"}
    overhead = 200  # for keys of JSON, and for compressing a small text
    assert len(packed(data)) <= timeline._at_most(data) + overhead


def test_very_long_names_are_cut() -> None:
    data = data_of(analysed(ranges=ranges(("x" * 10_000, 1, 2))))
    assert len(data["names"][0]) < 1_100
    assert "9,000 characters more" in data["names"][0]


def test_a_trace_without_times_says_so() -> None:
    section = timeline.section(Subject(analysed(metrics=table("metrics", [{"name": "a", "value": 1.0}], rank=0))))
    assert section.data is None
    assert "has a time" in section.why
    assert section.command.startswith("opspan ")


def test_arrows_are_those_of_the_analysis(tmp_path: Path) -> None:
    found = training(tmp_path)
    data = data_of(found)
    shapes = shapes_of(data)
    named = {name: summed(pairs["from"]) for name, pairs in data["arrows"].items()}
    launched = [
        (shapes["name"][one], shapes["start_ns"][one], shapes["name"][other], shapes["start_ns"][other])
        for one, other in zip(named["launch"], summed(data["arrows"]["launch"]["to"]), strict=True)
    ]
    work, calls = found.complete.work.drop_nulls("call"), found.complete.calls
    columns = (
        calls["name"].gather(work["call"]),
        calls["start_ns"].gather(work["call"]),
        work["name"],
        work["start_ns"],
    )
    assert Counter(launched) == Counter(zip(*(column.to_list() for column in columns), strict=True))
    linked = found.complete.ranges.filter(pl.col("forward").is_not_null(), pl.col("link") != BY_NESTING)
    assert len(named["backward"]) == len(linked) > 0


def test_details_stand_in_the_order_of_the_shapes(tmp_path: Path) -> None:
    found = training(tmp_path)
    data = data_of(found)
    shapes = shapes_of(data).filter(pl.col("table") == "ranges")
    (seq,) = (column for column in data["details"]["ranges"] if column["name"] == "seq")
    values = [None if value == seq["missing"] else value for value in summed(seq["at"])]
    shown = shapes.select("name", "start_ns", seq=pl.Series(values, dtype=pl.Int64)).sort(pl.all())
    expected = found.complete.ranges.select(pl.col("name").cast(pl.String), "start_ns", "seq").sort(pl.all())
    assert shown.equals(expected)
    took = shapes["end_ns"] - shapes["start_ns"] - pl.Series(data["inner"])
    assert took.sum() == found.complete.ranges["self_ns"].sum()


def test_numbers_past_2_to_the_53_are_said_exactly() -> None:
    seqs = [2**63 - 1, -(2**63), None]
    rows = [{"name": "a", "start_ns": at, "end_ns": at + 1, "seq": seq} for at, seq in enumerate(seqs)]
    data = data_of(analysed(ranges=ranges(*rows)))
    (seq,) = (column for column in data["details"]["ranges"] if column["name"] == "seq")
    assert [None if at < 0 else seq["texts"][at] for at in summed(seq["at"])] == [str(2**63 - 1), str(-(2**63)), None]


def test_gaps_and_waits_are_those_of_the_analysis(tmp_path: Path) -> None:
    found = training(tmp_path)
    shapes = shapes_of(data_of(found))
    gaps = shapes.filter(pl.col("table") == "gaps")
    assert (gaps["end_ns"] - gaps["start_ns"]).sum() == (found.gaps["end_ns"] - found.gaps["start_ns"]).sum()
    waits = shapes.filter(pl.col("table") == "calls", pl.col("kind") == "waiting")
    assert len(waits) == len(found.waits) > 0


def test_a_counter_keeps_its_peak_and_is_no_longer_than_can_be_seen() -> None:
    rows = [{"name": "loss", "time_ns": at, "value": 1e6 if at == 77_777 else at % 7} for at in range(100_000)]
    found = analysed(counters=table("counters", [*rows, {"name": "loss", "time_ns": 3, "value": float("nan")}], rank=0))
    (lane,), notes = counters(found, 0, 100_000)
    assert max(lane["values"]) == 1e6
    assert len(lane["values"]) == len(summed(lane["at"])) <= 2_002
    assert notes == []


def test_a_device_is_as_busy_as_the_analysis_says(tmp_path: Path) -> None:
    found = training(tmp_path)
    data = data_of(found)
    (busy, *_) = (lane for lane in data["counters"] if lane["kind"] == "utilisation" and lane["rank"] == 0)
    share = sum(busy["values"]) / len(busy["values"])
    of_rank = found.whole_devices.filter(pl.col("rank") == 0)
    assert share == pytest.approx(of_rank["busy_ns"].sum() / data["length"], abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "nsys/train_fsdp_2gpu.sqlite",
        "nsys/graph_nodes.sqlite",
        "kineto/b200_eager.json.gz",
        "kineto/ns_resolution.pt.trace.json.gz",
        "nvprof/ort_markers.nvvp",
        "vtune/r010hs_tasks/r010hs",
        "rocpd/torch_autograd.rpd",
        "rocpd/rocprofv3.db",
    ],
)
def test_nothing_of_a_real_trace_is_lost(name: str, traces_dir: Path) -> None:
    found = opspan.load(traces_dir / name).analysed
    data = data_of(found)
    shapes = shapes_of(data)
    for table_ in TABLES:
        frame = getattr(found.complete, table_)
        assert shapes.filter(pl.col("table") == table_)["count"].sum() == frame["start_ns"].count()
    assert len(packed(data)) < timeline.MOST_BYTES
