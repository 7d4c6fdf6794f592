"""Chrome traces: judged by torch's own export of the same events, by the frames, and by the json module."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.analysis import attribute
from opspan.trace import Trace
from views.sources import HOSTILE, UTC_NS, capture, nsys

REAL = ["nsys/train_fsdp_2gpu.sqlite", "nsys/pyprof_2024.sqlite", "nvprof/lm_emit_nvtx.sql", "nsys/graph_nodes.sqlite"]


def written(trace: Trace, folder: Path) -> dict[str, Any]:
    trace.export(folder / "out.json")
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


def of_phase(document: dict[str, Any], *phases: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] in phases]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


@pytest.mark.parametrize("make", [nsys, capture])
def test_spans_are_those_of_torchs_own_export(make: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trace = opspan.load(make(tmp_path / "source"))
    # torch writes names as they are, and its file is no JSON when one has a quote in it.
    trace = trace.replace(ranges=trace.ranges.filter(~pl.col("name").cast(pl.String).eq_missing(HOSTILE)))
    trace = trace.replace(ranges=trace.ranges.filter(~pl.col("text").eq_missing(HOSTILE)))
    trace.events().to_torch().export_chrome_trace(str(tmp_path / "torch.json"))
    torchs = [event for event in json.loads((tmp_path / "torch.json").read_text()) if event["ph"] == "X"]
    document = written(trace, tmp_path)

    # torch has no calls; an event that overlaps is a span with it, and a pair of ends here; it has no open work either.
    zero = min(ns(event["ts"]) for event in torchs)
    expected = Counter((event["name"], ns(event["ts"]) - zero, ns(event["dur"])) for event in torchs)
    ends = {(event["cat"], event["id"]): event for event in of_phase(document, "e")}
    found: Counter[tuple[str, int, int]] = Counter()
    for event in of_phase(document, "X", "b"):
        if event.get("cat") == "cuda_runtime" or event.get("cat") == "cuda_sync":
            continue
        took = event["dur"] if event["ph"] == "X" else ends[event["cat"], event["id"]]["ts"] - event["ts"]
        found[event["name"], ns(event["ts"]), ns(took)] += 1
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_nothing_of_a_real_trace_is_lost_and_arrows_go_where_the_frames_say(
    name: str, traces_dir: Path, tmp_path: Path
) -> None:
    trace = attribute(opspan.load(traces_dir / name))
    document = written(trace, tmp_path)
    spans, pairs = of_phase(document, "X"), of_phase(document, "b")
    marks = trace.ranges["is_mark"].fill_null(value=False)

    timed = [frame["start_ns"].count() for frame in (trace.ranges, trace.calls, trace.work)]
    points = [event for event in of_phase(document, "i") if "range" in event["args"]]
    assert len(spans) + len(pairs) + len(points) == sum(timed)
    starts = [frame["start_ns"].min() for frame in (trace.ranges, trace.calls, trace.work)]
    starts += [frame["time_ns"].min() for frame in (trace.counters, trace.memory)]
    zero = document["opspan"]["zero_ns"]
    assert zero % 1000 == 0  # HTA takes whole microseconds
    assert 0 <= min(time for time in starts if time is not None) - zero < 1000
    kernels = trace.work.filter(pl.col("kind") == "kernel")
    took = sum(ns(event["dur"]) for event in spans if event["cat"] == "kernel")
    assert took == (kernels["end_ns"] - kernels["start_ns"]).sum()
    nested = trace.ranges.filter(~marks, ~pl.col("is_async").fill_null(value=False))
    expected = Counter(
        (start - zero, end - start) for start, end in nested.select("start_ns", "end_ns").rows() if end is not None
    )
    found = Counter((ns(event["ts"]), ns(event["dur"])) for event in spans if "range" in event["args"])
    assert found.total() == nested.height
    assert not expected - found

    begins = {event["id"]: ns(event["ts"]) for event in of_phase(document, "s") if event["cat"] == "ac2g"}
    ends = {event["id"]: ns(event["ts"]) for event in of_phase(document, "f") if event["cat"] == "ac2g"}
    launched = trace.work.filter(pl.col("call").is_not_null())
    calls = trace.calls["start_ns"].gather(launched["call"]).to_list()
    assert begins.keys() == ends.keys()
    assert Counter((begins[key], ends[key]) for key in begins) == Counter(
        (call - zero, start - zero) for call, start in zip(calls, launched["start_ns"], strict=True)
    )


def test_any_name_is_a_name_and_gzip_is_the_same(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    document = written(trace, tmp_path)
    text = (tmp_path / "out.json").read_text()

    assert HOSTILE in {event["name"] for event in of_phase(document, "X")}
    assert not any(ord(char) < 0x20 and char != "\n" for char in text)
    assert "\u2028" not in text
    assert document["baseTimeNanoseconds"] == UTC_NS + 1_000
    trace.export(tmp_path / "out.json.gz")
    assert gzip.decompress((tmp_path / "out.json.gz").read_bytes()).decode() == text


def test_an_empty_trace_is_an_empty_document(tmp_path: Path) -> None:
    trace = opspan.load(nsys(tmp_path / "run.sqlite"))
    empty = trace.replace(**{name: frame.clear() for name, frame in trace.frames.items()})
    assert written(empty, tmp_path)["traceEvents"] == []
