"""Nothing of an exported Chrome trace is lost in Perfetto, whatever the source and whatever the names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import opspan
from opspan.trace import Trace
from readers.samples import samples
from tiers import before_release
from views import perfetto
from views.sources import capture, nsys
from views.test_chrome_back import hostile

SAMPLES = samples() | {
    "small nsys": lambda folder: nsys(folder / "run.sqlite"),
    "small capture": lambda folder: capture(folder / "run"),
}
REAL = ("nsys/graph_nodes.sqlite", "nsys/train_fsdp_2gpu.sqlite", "rocpd/torch_autograd.rpd")
NAMES = [
    'a "name"\\',
    "".join(map(chr, range(0x20))) + "\x7f",
    "</script>",
    "\u202eright to left\u2028\u2029",
    "x" * 10_000,
    "\N{GRINNING FACE}\ufffd\ufffe\uffff",
    "NaN",
    "",
]


def exported(trace: Trace, folder: Path) -> list[perfetto.Event]:
    trace.export(folder / "out.json")
    events = perfetto.taken(folder / "out.json")
    assert perfetto.drawn(events) == perfetto.rows_of(trace.frames)
    return events


@pytest.mark.parametrize("name", SAMPLES)
def test_every_source(name: str, tmp_path: Path) -> None:
    assert exported(opspan.load(SAMPLES[name](tmp_path)), tmp_path)


@pytest.mark.parametrize("name", before_release(REAL))
def test_real_files_with_work_that_overlaps_on_its_stream(name: str, traces_dir: Path, tmp_path: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    exported(opspan.load(traces_dir / name), tmp_path)


def test_any_text_is_a_text_of_json(tmp_path: Path) -> None:
    trace = hostile()
    at = pl.int_range(len(NAMES), dtype=pl.Int64)
    ranges = pl.DataFrame({"name": NAMES}).with_columns(
        id=at, rank=0, pid=1, tid=1, start_ns=at * 10, end_ns=at * 10 + 5, text="name", args="name"
    )
    calls = trace.calls.clear()  # one of them overlaps a range in part, as no program's can
    trace = trace.replace(ranges=ranges.cast({"rank": pl.Int32}), calls=calls)
    events = exported(trace, tmp_path)
    found = [event for event in events if event["ph"] == "X" and event["tid"] == 1 and "Text" in event["args"]]
    assert [event["name"] for event in found] == NAMES
    assert [event["args"]["Text"] for event in found] == NAMES
    assert [event["args"]["Args"] for event in found] == NAMES


def test_what_was_said_of_a_run_is_json(tmp_path: Path) -> None:
    trace = hostile()
    said = {"half": "\ud800", "large": [float("inf")], "none": float("nan")}
    rank = replace(trace.metadata, options={"metadata": said})
    exported(Trace((rank,), **trace.frames).replace(calls=trace.calls.clear()), tmp_path)
    document = json.loads((tmp_path / "out.json").read_text())
    assert [document[name] for name in said] == ["?", ["Infinity"], "NaN"]


def test_work_that_overlaps_on_its_stream_is_beside_it(tmp_path: Path) -> None:
    times = [(0, 10), (2, 5), (5, 15), (8, 20), (15, 18), (30, 40), (40, 41)]
    work = pl.DataFrame(times, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    work = work.with_row_index("id").with_columns(rank=0, pid=1, device_id=0, stream_id=7, name=pl.lit("k"))
    trace = hostile().replace(work=work.cast({"rank": pl.Int32}), calls=hostile().calls.clear())
    spans = [event for event in exported(trace, tmp_path) if event["ph"] == "X" and "work" in event["args"]]
    assert {event["args"]["stream"] for event in spans} == {7}
    tracks = [event["tid"] for event in sorted(spans, key=lambda event: event["args"]["work"])]
    # The third overlaps the first; the fourth the third, so it is beside both; the fifth lies in the fourth.
    assert [track - min(tracks) for track in tracks] == [0, 0, 1, 2, 0, 0, 0]
    titles = [
        event["args"]["name"] for event in perfetto.taken(tmp_path / "out.json") if event["name"] == "thread_name"
    ]
    assert {"stream 7", "stream 7, overlapping 1", "stream 7, overlapping 2"} <= set(titles)
