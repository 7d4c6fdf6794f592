"""unitrace's Chrome traces, made by hand as its writer puts them together: no real file is at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import unitrace
from opspan.analysis import analyse
from opspan.trace import Trace
from readers.loading import codes, row


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return opspan.load(unitrace.write(tmp_path / "app.700.json", unitrace.events()))


def load(tmp_path: Path, *events: str, closed: bool = True) -> Trace:
    first = unitrace.name("process_name", unitrace.PID, "HOST<a>")
    return opspan.load(unitrace.write(tmp_path / "app.json", [first, *events], closed=closed))


def test_tasks_of_opspan_have_what_stood_beside_them(trace: Trace) -> None:
    op = row(trace.ranges, "aten::linear")
    assert (op["domain"], op["source"], op["kind"]) == ("opspan", "itt", "op")
    assert (op["seq"], op["op_id"], op["sizes"]) == (5, 77, "[[8, 4], [], [3]]")
    zero = unitrace.ZERO_US * 1000
    assert (op["start_ns"] - zero, op["end_ns"] - zero) == (10_000, 60_000)
    assert trace.origin_utc_ns == 0
    assert not trace.ranges["is_async"].any()


def test_a_backward_is_linked_to_its_forward(trace: Trace) -> None:
    ranges = analyse(trace).ranges
    backward = row(ranges, "AddmmBackward0")
    assert (backward["kind"], backward["forward_tid"]) == ("backward", unitrace.MAIN)
    assert ranges["name"][backward["forward"]] == "aten::linear"


def test_a_task_with_a_forward_thread_is_a_backward_whatever_its_name(tmp_path: Path) -> None:
    trace = load(tmp_path, unitrace.host("opspan::MyGradient", 1, 5, 1, '"seq":[5],"fwd_tid":[0]'))
    assert trace.ranges.select("kind", "forward_tid").rows() == [("backward", None)]


def test_labels_in_names_are_read(trace: Trace) -> None:
    op = row(trace.ranges, "aten::mul")
    assert (op["domain"], op["seq"], op["op_id"], op["text"]) == ("PyTorch", 9, 90, "aten::mul, seq = 9, op_id = 90")


def test_functions_of_libraries_are_calls(trace: Trace) -> None:
    assert trace.calls.select("name", "api").rows() == [
        ("zeCommandListAppendLaunchKernel", "level_zero"),
        ("zeEventHostSynchronize", "level_zero"),
        ("urEnqueueKernelLaunch", "sycl"),
        ("MPI_Allreduce", "mpi"),
    ]
    assert json.loads(row(trace.calls, "MPI_Allreduce")["payload_json"]) == {"ssize": 8, "mpi_counter": 3}
    assert row(trace.ranges, "submit")["source"] == "unitrace"


def test_arrows_give_work_to_the_call_before_them_and_its_op(trace: Trace) -> None:
    analysed = analyse(trace)
    owners = analysed.ranges["name"].gather(analysed.work["range"]).to_list()
    assert owners == ["aten::linear", "aten::linear"]  # one call, two commands
    assert analysed.work["pid"].to_list() == [unitrace.PID] * 2
    assert analysed.coverage.work_with_call.count == 2


def test_commands_say_in_their_names_what_they_are(trace: Trace) -> None:
    kernel, copy = trace.work.iter_rows(named=True)
    assert (kernel["kind"], kernel["name"]) == ("kernel", "gemm")
    assert kernel["full_name"] == "gemm[SIMD32 {8; 2; 1} {256; 1; 1}]"
    assert [kernel[f"{of}_{axis}"] for of in ("grid", "block") for axis in "xyz"] == [8, 2, 1, 256, 1, 1]
    assert (kernel["start_ns"] - unitrace.ZERO_US * 1000, kernel["end_ns"] - kernel["start_ns"]) == (30_250, 30_500)
    assert (copy["kind"], copy["bytes"]) == ("memcpy", 4096)
    assert json.loads(copy["payload_json"]) == {"command": 13}
    assert trace.devices.select("device_id", "kind", "name").rows() == [(0, "xpu", "RANK 2 DEVICE<0000:9a:00.0> #0")]


def test_where_it_came_from(trace: Trace) -> None:
    assert (trace.metadata.host, trace.metadata.told.rank) == ("node-3", 2)
    assert trace.metadata.tool == "unitrace"


def test_begin_and_end_are_one_range_and_marks_are_marks(trace: Trace) -> None:
    pair = trace.ranges.filter(pl.col("end_ns") - pl.col("start_ns") == 5_000, pl.col("name") == "")
    assert pair.height == 1
    assert row(trace.ranges, "here")["is_mark"]


def test_nothing_is_uncounted(trace: Trace) -> None:
    assert codes(trace) == {"skipped_events": 2}  # the ends of the arrows back
    assert "Flow_D2H 2" in trace.issues["message"][0]


@pytest.mark.parametrize("order", ["BBEE", "BEBE", "BBEBEE"])
def test_pairs_nest(tmp_path: Path, order: str) -> None:
    events, open_, expected = [], [], []
    for at, phase in enumerate(order):
        if phase == "B":
            open_.append(at)
        else:
            expected.append((open_.pop() * 1000, at * 1000))
        events.append(unitrace.host("omp", 1, at, 0, phase=phase))
    ranges = load(tmp_path, *events).ranges
    zero = unitrace.ZERO_US * 1000
    assert ranges.select(pl.col("start_ns", "end_ns") - zero).sort("start_ns").rows() == sorted(expected)


def test_lone_beginnings_and_ends_are_counted(tmp_path: Path) -> None:
    lone = [unitrace.host("omp", 1, at, 0, phase=phase) for at, phase in enumerate("EBEB")]
    trace = load(tmp_path, *lone)
    assert trace.ranges["end_ns"].null_count() == 1
    assert trace.ranges.height == 2
    assert codes(trace) == {"open_ranges": 1, "end_without_start": 1}


def test_of_calls_that_begin_together_the_last_before_the_arrow_is_meant(tmp_path: Path) -> None:
    trace = load(
        tmp_path,
        unitrace.host("zeOuter", 1, 5, 9),
        unitrace.host("zeInner", 1, 5, 2),
        unitrace.arrow("s", "H2D", 1, 5, 12),
        unitrace.host("zeLater", 1, 5, 1),
        unitrace.device("k", 20, 5, 12),
    )
    call = analyse(trace).work["call"][0]
    assert trace.calls["name"][call] == "zeInner"


def test_work_without_an_arrow_is_counted_as_such(tmp_path: Path) -> None:
    trace = load(tmp_path, unitrace.host("zeX", 1, 5, 9), unitrace.device("Tile #0: k", 20, 5, 12))
    assert trace.work["correlation_id"].to_list() == [None]
    assert analyse(trace).coverage.work_with_call.count == 0


@pytest.mark.parametrize("others", [0, 1])
def test_work_without_an_arrow_is_of_the_only_process_that_launched_any(tmp_path: Path, others: int) -> None:
    launch, arrow = unitrace.host("zeX", 1, 5, 9), unitrace.arrow("s", "H2D", 1, 5, 12)
    foreign = [launch.replace(f'"pid": {unitrace.PID}', '"pid": 800'), unitrace.arrow("s", "H2D", 1, 5, 14, 800)]
    work = [unitrace.device("k", 20, 5, 12), unitrace.device("k", 30, 5, 13)]
    trace = load(tmp_path, launch, arrow, *foreign * others, *work)
    assert trace.work["pid"].to_list() == [unitrace.PID, None if others else unitrace.PID]


def test_a_file_without_its_end_is_whole(tmp_path: Path, trace: Trace) -> None:
    other = opspan.load(unitrace.write(tmp_path / "killed.json", unitrace.events(), closed=False))
    assert codes(other) == {"skipped_events": 2, "not_closed": 1}
    for table in ("ranges", "calls", "work"):
        assert other.frames[table].equals(trace.frames[table])


def test_compressed(tmp_path: Path, trace: Trace) -> None:
    path = unitrace.write(tmp_path / "plain.json", unitrace.events())
    (tmp_path / "app.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert opspan.load(tmp_path / "app.json.gz").ranges.equals(trace.ranges)


def test_texts_that_were_not_escaped(tmp_path: Path) -> None:
    trace = load(
        tmp_path,
        unitrace.host("mine::C:\\dir\\new \\q", 1, 5, 1),
        unitrace.host("mine::a", 1, 6, 1, '"said":["he said "no""]'),
        unitrace.host('mine::"b"', 1, 7, 1),
        unitrace.host("mine::c", 1, 8, 1),
    )
    # A name with a quote in it is where the event ends; args with one are lost alone.
    assert trace.ranges["name"].to_list() == ["C:\\dir\new \\q", "a", "c"]
    assert codes(trace) == {"damaged_file": 2}


def test_a_monotonic_clock_is_told_by_its_times(tmp_path: Path) -> None:
    event = unitrace.host("zeX", 1, 5, 1).replace(str(unitrace.ZERO_US + 5), "81234567")
    trace = load(tmp_path, event)
    assert (trace.metadata.clock, trace.origin_utc_ns) == ("CLOCK_MONOTONIC_RAW", None)


def test_events_and_tables(trace: Trace) -> None:
    table = trace.events().key_averages().table(sort_by="self_xpu_time_total")
    assert "Self XPU" in table
    assert "gemm" in table
