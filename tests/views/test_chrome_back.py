"""A Chrome trace that opspan exports is read back completely: from every source, from real files, and from hostile
ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import opspan
from opspan.analysis import analyse
from opspan.cli import main
from opspan.errors import TooNew
from opspan.tables import Metadata, side_by_side
from opspan.trace import Trace
from views.sources import HOSTILE, PID, capture, nsys
from views.there_and_back import assert_same, there_and_back

REAL = (
    "nsys/cudf_2020.sqlite",
    "nsys/infer_2gpu.sqlite",
    "nsys/mpi_saxpy_2022.sqlite",
    "nsys/nvfuser_2025.sqlite",
    "nsys/open_ranges.sqlite",
    "nsys/pyprof_2024.sqlite",
    "nsys/train_fsdp_2gpu.sqlite",
    "nvprof/cpu_faults.prof",
    "nvprof/nccl_4gpu.nvvp",
    "rocpd/matmul_result_large.rpd",
    "rocpd/rocprofv3.db",
    "vtune/r000cc_2015/r000cc.amplxe",
    "vtune/r001hs_2013/r001hs",
    "vtune/r010hs_tasks/r010hs",
    "kineto/alexnet_sync_events.json.gz",
    "kineto/bert_h100_foreign_thread_functions.json.gz",
    "kineto/mtia_inference.json.gz",
    "kineto/norm_layers.json.gz",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str, traces_dir: Path, tmp_path: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    trace = opspan.load(traces_dir / name)
    assert_same(trace, there_and_back(trace, tmp_path))


@pytest.mark.parametrize("make", [nsys, capture])
@pytest.mark.parametrize("name", ["back.json", "back.json.gz"])
def test_made_files(make: Any, name: str, tmp_path: Path) -> None:
    trace = opspan.load(make(tmp_path / "source"))
    assert_same(trace, there_and_back(trace, tmp_path, name))


def test_ranks_with_equal_processes_stay_apart(tmp_path: Path) -> None:
    one = opspan.load(nsys(tmp_path / "one.sqlite"))
    trace = Trace.of(
        side_by_side([one, opspan.load(nsys(tmp_path / "other.sqlite", 3)), opspan.load(capture(tmp_path / "c"))])
    )
    back = there_and_back(trace, tmp_path)
    assert back.work["rank"].unique().sort().to_list() == [0, 1]
    assert_same(trace, back)


def test_what_was_read_back_goes_there_and_back_again(tmp_path: Path) -> None:
    trace = opspan.load(capture(tmp_path / "source"))
    back = there_and_back(there_and_back(trace, tmp_path), tmp_path, "again.json")
    assert_same(trace, back)


def test_the_table_is_the_same(tmp_path: Path) -> None:
    source = nsys(tmp_path / "run.sqlite")
    there_and_back(opspan.load(source), tmp_path)
    one, other = (CliRunner().invoke(main, ["table", str(path)]).output for path in (source, tmp_path / "back.json"))
    assert len(one.splitlines()) > 10
    assert other == one


def test_the_other_verbs_take_the_export_for_the_source_it_is_now(tmp_path: Path) -> None:
    back = there_and_back(opspan.load(nsys(tmp_path / "run.sqlite")), tmp_path)
    assert back.metadata.paths == (str(tmp_path / "back.json"),)
    done = CliRunner().invoke(main, ["export", "--force", *[str(tmp_path / "back.json")] * 2])
    assert done.exit_code != 0
    assert "never replaced" in done.output
    assert opspan.load_kineto(tmp_path / "back.json")


def hostile() -> Trace:
    """Cells that are null, at the ends of their types, or not what they seem to be."""
    big = (1 << 62) - 1
    ranges = pl.DataFrame(
        {
            "id": range(8),
            "rank": [0] * 8,
            "pid": [PID, PID, PID, PID, None, None, 0, 0],
            "tid": [1, 1, 0, None, None, 7, -5, 0],
            "start_ns": [5, 6, 7, 8, 9, 10, 11, 12],
            "end_ns": [90, None, 50, None, None, None, 11, None],
            "name": [HOSTILE, None, "(no name)", "", "call", "i", "range", "{}"],
            "kind": ["user", None, "unknown", "op", "backward", "module", "step", "engine"],
            "text": [None, None, HOSTILE, "", "a, seq = 5", None, "{'mod': 'x'}", "\\u0000"],
            "is_async": [False, True, True, True, False, False, False, False],
            "is_mark": [False, False, False, False, False, True, False, True],
            "color": [(1 << 32) - 1, None, 0, 1, 2, 3, 4, 5],
            "seq": [-big, 5, None, 0, 1, big, 2, 3],
            "payload_int": [None, -(1 << 63), (1 << 63) - 1, None, None, None, 0, None],
            "payload_uint": [(1 << 64) - 1, None, None, 0, None, None, None, None],
            "payload_float": [None, None, None, None, float("nan"), float("-inf"), 5e-324, 0.1 + 0.2],
            "payload_json": ['{"a": "' + '\\"}', None, "{}", "[1", "null", '{"work": 3}', None, None],
            "sizes": ["[[2", None, "[]", "7", '"', None, None, "[[1, 2], []]"],
            "category": ["range", "", None, "3", None, None, None, None],
            "domain": ["", HOSTILE, None, None, None, None, None, None],
            "parent_id": [None, 0, 0, 99, None, None, None, None],
            "end_tid": [1, 2, None, None, None, None, None, None],
        },
        strict=False,
    )
    overlap = {"id": [8], "rank": [0], "pid": [PID], "tid": [1], "start_ns": [20], "end_ns": [95], "name": ["overlaps"]}
    overlap |= {"is_async": [False], "is_mark": [False]}
    ranges = pl.concat([ranges, pl.DataFrame(overlap)], how="diagonal_relaxed")
    work = {"id": [0, 1, 2], "rank": [0, 0, 0], "pid": [PID, None, 3], "device_id": [0, None, 5]}
    work |= {"start_ns": [20, 30, None], "end_ns": [None, 31, 40], "grid_x": [1, None, None], "grid_z": [3, None, None]}
    work |= {"kind": ["kernel", None, "sync"], "name": ["k", None, "k"], "full_name": ["void k()", None, None]}
    work |= {"is_overhead": [False, True, False], "tid": [None, 1, None], "correlation_id": [7, 7, None]}
    work |= {"named_range_id": [0, None, 99], "copy_from": ["pinned", HOSTILE, None], "peer_device_id": [None, 1, None]}
    work |= {"static_shared_bytes": [0, None, 1], "dynamic_shared_bytes": [None, 7, 1], "graph_exec_id": [1, 2, 3]}
    calls = {"id": [0, 1], "rank": [0, 0], "pid": [PID, PID], "tid": [1, 1], "start_ns": [13, 14], "end_ns": [15, None]}
    calls |= {"name": ["a", None], "api": [None, "kernel"], "correlation_id": [7, None], "return_code": [-1, None]}
    memory = {"rank": [0] * 4, "pid": [PID] * 4, "time_ns": [1, 2, 3, 4], "event": ["free", "alloc", "transfer", None]}
    memory |= {"bytes": [5, None, 7, 8], "address": [(1 << 64) - 1, 0, None, 1], "end_ns": [None, None, 9, None]}
    memory |= {"device_id": [0, None, 3, 4], "name": ["x", None, "", "y"], "count": [None, 2, None, None]}
    counters = {"rank": [0] * 4, "pid": [PID, None, None, PID], "tid": [1, 2, None, None], "time_ns": [1, 2, 3, 4]}
    counters |= {"name": ["a", None, "a", "a"], "domain": [None, "d", HOSTILE, ""], "device_id": [None, 1, 2, 3]}
    counters |= {"value": [float("inf"), None, -0.5, 1e308]}
    metrics = {"rank": [0, 0], "name": [HOSTILE, None], "metric": ["m", "n"], "value": [float("nan"), 1.5]}
    devices = {"rank": [0], "device_id": [0], "uuid": ["GPU-1"], "memory_bytes": [1 << 40], "capability": ["9.0"]}
    threads = {"rank": [0], "pid": [PID], "tid": [1], "name": [HOSTILE], "payload_json": ['{"a": 1}']}
    processes = {"rank": [0], "pid": [PID], "name": ["python"], "is_forked": [True], "start_ns": [-5]}
    return Trace(
        (Metadata("nsys", ("x",), tool=HOSTILE, host=HOSTILE, origin_utc_ns=-5, options={"a": [1, HOSTILE]}),),
        ranges=ranges,
        **{name: pl.DataFrame(columns, strict=False) for name, columns in {
            "work": work, "calls": calls, "memory": memory, "counters": counters, "metrics": metrics,
            "devices": devices, "threads": threads, "processes": processes,
        }.items()},
    )  # fmt: skip


def test_hostile_cells(tmp_path: Path) -> None:
    trace = hostile()
    back = there_and_back(trace, tmp_path)
    assert json.loads((tmp_path / "back.json").read_text(), parse_constant=pytest.fail)
    assert back.coverage.overlapping_ranges == 1
    assert_same(trace, back)
    analysed = there_and_back(analyse(trace), tmp_path, "analysed.json")
    assert analysed.ranges["end_ns"].equals(trace.ranges["end_ns"])
    assert analysed.coverage == trace.coverage
    assert back.work.height == 2  # the third has no time: export says so


@pytest.mark.parametrize("make", [nsys, capture, None])
def test_the_file_is_what_viewers_expect(make: Any, tmp_path: Path) -> None:
    there_and_back(hostile() if make is None else opspan.load(make(tmp_path / "source")), tmp_path)
    text = (tmp_path / "back.json").read_text()
    assert not re.search(r'"(ts|dur)":(?!-?[0-9]+\.[0-9]{3}[,}])', text)  # to the nanosecond, and no exponents
    needed = {"X": "cat name ts dur args", "i": "cat name ts s args", "b": "cat name ts id args", "e": "cat name ts id"}
    needed |= {"C": "name ts args", "M": "name args", "s": "cat name ts id", "f": "cat name ts id bp"}
    pairs: Counter[Any] = Counter()
    for event in json.loads(text)["traceEvents"]:
        assert {"pid", "tid", *needed[event["ph"]].split()} <= event.keys()
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] in "be":
            assert type(event["id"]) is str
            pairs[event["cat"], event["id"]] += 1 if event["ph"] == "b" else -1
        if event["ph"] == "C":
            assert event["args"].keys() <= {"value"}
    assert not any(pairs.values())


def test_a_process_with_the_highest_number(tmp_path: Path) -> None:
    trace = hostile()
    highest = pl.lit((1 << 63) - 1, pl.Int64)
    trace = trace.replace(ranges=trace.ranges.with_columns(pid=highest), calls=trace.calls.with_columns(pid=highest))
    assert_same(trace, there_and_back(trace, tmp_path))


# --- files that others wrote again, or that are no exports


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    there_and_back(opspan.load(nsys(tmp_path / "run.sqlite")), tmp_path)
    found: dict[str, Any] = json.loads((tmp_path / "back.json").read_text())
    return found


def changed(document: dict[str, Any], tmp_path: Path, **members: Any) -> Trace:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**document, **members}))
    return opspan.load(path)


def test_an_export_whose_own_members_are_gone_is_read_as_torchs(document: dict[str, Any], tmp_path: Path) -> None:
    trace = opspan.load(tmp_path / "run.sqlite")
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": document["traceEvents"]}))
    found = opspan.load(path)
    spans = trace.ranges.filter(~pl.col("is_async").fill_null(value=False))
    assert found.ranges.height == spans.height
    assert found.coverage.work_in_range.count == trace.coverage.work_in_range.count


def test_a_newer_export_says_so(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TooNew, match="update it"):
        changed(document, tmp_path, opspan={"version": 2})


@pytest.mark.slow
@pytest.mark.parametrize(
    "tables",
    [
        None,
        [],
        {"ranks": {}, "places": [], "series": 3},
        {"ranks": [None, {"source": 3, "options": [], "origin_utc_ns": "x"}], "places": {"process": ["a", [], 1]}},
        {"threads": {"pid": [1, 2], "tid": "x", "name": [{}]}, "devices": {"device_id": [1 << 80, "0", 1.5, True]}},
        {"issues": {"code": [1], "severity": ["loud"]}, "processes": {"is_forked": ["perhaps", None, False]}},
    ],
)
def test_tables_that_are_none_are_read_as_far_as_they_go(document: dict[str, Any], tmp_path: Path, tables: Any) -> None:
    trace = changed(document, tmp_path, opspanTables=tables)
    assert trace.ranges.height == opspan.load(tmp_path / "back.json").ranges.height
    assert trace.events().table()


def test_events_that_another_tool_put_in_are_counted(document: dict[str, Any], tmp_path: Path) -> None:
    mine = {"ph": "X", "cat": "mine", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    trace = changed(document, tmp_path, traceEvents=[*document["traceEvents"], mine])
    assert trace.issues.select("code", "count").rows() == [("skipped_events", 1)]
