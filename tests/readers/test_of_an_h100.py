"""Files that torch 2.11 and opspan wrote on an H100 (CUDA 13.0, driver 580.159.04) of programs of our own.

tools/gpu-check wrote those of torch.profiler, `pytest -m gpu` the recording; paths in them are cut. A full queue of
launches is in tests/analysis/test_launch_queue.py.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.analysis.analysed import Analysis

DATA = Path(__file__).parents[1] / "data/h100"
RECORDING = "3950-335826808760"  # its process and the time of its beginning
STREAMS = ("one", "two")
CAPTURE = ("cudaStreamBeginCapture", "cudaStreamEndCapture")
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemsetAsync")


def loaded(name: str) -> Analysis:
    return opspan.load(DATA / f"{name}.json.gz").analysed


def recording(folder: Path) -> Path:
    for ending in ("opspan", "1.device.json"):
        packed = (DATA / f"transformer_amp.{ending}.gz").read_bytes()
        (folder / f"{RECORDING}.{ending}").write_bytes(gzip.decompress(packed))
    return folder


def work_of(analysis: Analysis) -> list[dict[str, Any]]:
    """Kernels, copies and fills in the order in which they began, each with `op`, and with its call's name and time."""
    names, calls = analysis.complete.ranges["name"].to_list(), analysis.complete.calls["name"].to_list()
    called = analysis.complete.calls["start_ns"].to_list()
    rows = analysis.complete.work.filter(~pl.col("is_overhead")).sort("start_ns").to_dicts()
    for row in rows:
        row["op"] = None if row["launch_range"] is None else names[row["launch_range"]]
        row["by"] = None if row["call"] is None else calls[row["call"]]
        row["call_ns"] = None if row["call"] is None else called[row["call"]]
    return rows


def replays_of(analysis: Analysis) -> list[list[dict[str, Any]]]:
    by_launch = defaultdict(list)
    for row in work_of(analysis):
        if row["by"] == "cudaGraphLaunch":
            by_launch[row["call"]].append(row)
    return list(by_launch.values())


def by_stream(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The names of each stream in their order."""
    streams = defaultdict(list)
    for row in rows:
        streams[row["stream_id"]].append(row["full_name"])
    return list(streams.values())


def is_part(names: list[str], of: list[str]) -> bool:
    """Whether all the names are there, in this order, with others between them."""
    left = iter(of)
    return all(name in left for name in names)


@pytest.mark.parametrize("streams", STREAMS)
def test_a_replay_does_what_was_captured_in_the_order_of_each_stream(streams: str) -> None:
    """A replay chooses the stream of each branch anew, so that only the order on each of them is known."""
    eager = sorted(work_of(loaded(f"eager_{streams}")), key=lambda row: row["call_ns"])
    launched = [row["full_name"] for row in eager]

    replays = replays_of(loaded(f"graph_{streams}"))

    assert [len(replay) for replay in replays] == [11, 11, 11]
    for replay in replays:
        assert sorted(row["full_name"] for row in replay) == sorted(launched)
        assert all(is_part(names, launched) for names in by_stream(replay))
        assert len(by_stream(replay)) == {"one": 1, "two": 2}[streams]


@pytest.mark.parametrize("streams", STREAMS)
def test_launches_of_a_capture_have_no_work_and_no_id_of_the_graph(streams: str) -> None:
    """Nothing in these files joins a replay with its capture but the number and the order of launches."""
    found = loaded(f"graph_{streams}")
    calls = found.complete.calls.with_row_index("call").sort("start_ns")
    bounds = {name: calls.filter(pl.col("name") == name)["start_ns"].item() for name in CAPTURE}
    begin, end = bounds.values()

    captured = calls.filter(pl.col("start_ns").is_between(begin, end) & pl.col("name").is_in(LAUNCHES))

    (kinds,) = {tuple(row["kind"] for row in replay) for replay in replays_of(found)}
    of_calls = ["memset" if name == "cudaMemsetAsync" else "kernel" for name in captured["name"]]
    assert of_calls == list(kinds)
    assert found.complete.work["call"].is_in(captured["call"].implode()).sum() == 0
    assert found.complete.work["graph_id"].null_count() == found.complete.work.height
    assert calls["graph_id"].null_count() == calls.height
    assert found.coverage.work_with_call.count == found.coverage.work_with_call.of == 35


def test_kernels_of_a_compiled_model_belong_to_their_ops() -> None:
    rows = work_of(loaded("compiled"))

    assert len(rows) == 48
    assert all(row["by"] for row in rows)
    of_triton = [(row["name"], row["op"], row["by"]) for row in rows if row["name"].startswith("triton_")]
    assert len(of_triton) == 16
    assert all(name == op and by == "cuLaunchKernel" for name, op, by in of_triton)
    assert {row["op"] for row in rows if "gemm" in row["name"]} == {"aten::addmm", "aten::mm"}


def test_replays_of_reduce_overhead_belong_to_the_compiled_graph() -> None:
    found = loaded("reduce_overhead_replays")

    replays = replays_of(found)

    assert [len(replay) for replay in replays] == [10, 10, 10]
    assert {tuple(row["name"] for row in replay) for replay in replays} == {tuple(row["name"] for row in replays[0])}
    assert len({row["op"] for replay in replays for row in replay}) == 1
    assert replays[0][0]["op"].startswith("## Call CompiledFxGraph ")
    others = [(row["name"], row["op"]) for row in work_of(found) if row["by"] != "cudaGraphLaunch"]
    assert others == [("multi_tensor_apply_kernel", "aten::_foreach_copy_")] * 3  # inputs to where the graph reads


def test_a_recording_of_an_h100_has_the_op_of_each_kernel(tmp_path: Path) -> None:
    trace = opspan.load(recording(tmp_path))

    rows = work_of(trace.analysed)

    assert trace.issues.is_empty()
    kinds = [row["kind"] for row in rows]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"kernel": 83, "memset": 2, "memcpy": 7}
    assert all(row["by"] and row["op"] for row in rows)
    assert {row["op"] for row in rows if row["kind"] == "memcpy"} == {"aten::copy_", "aten::_local_scalar_dense"}
    assert (trace.calls["correlation_id"].n_unique(), trace.calls.height) == (107, 107)
