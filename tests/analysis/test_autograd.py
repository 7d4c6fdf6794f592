"""Backward to forward: by example, and on a recorded transformer."""

from __future__ import annotations

import re
import sqlite3
import struct
from collections import Counter
from pathlib import Path

import polars as pl

from analysis.frames import ranges, table
from opspan.analysis import autograd, averages, coverage, launches, modules, nest, ops, phases


def links(*rows: dict) -> list[tuple]:
    """(forward, link) of each row; text, and tid 1 if nothing else is said."""
    found = autograd(nest(ops(ranges(*rows, kind=None))))
    return list(found.select("forward", "link").iter_rows())


def op(text: str, start: int, end: int, tid: int = 1, **other) -> dict:
    return {"text": text, "start_ns": start, "end_ns": end, "tid": tid, **other}


def test_the_innermost_last_op_with_the_seq_made_the_node() -> None:
    found = links(
        op("aten::linear, seq = 3, op_id = 1", 0, 100),
        op("aten::t, seq = 3, op_id = 2", 10, 30),
        op("aten::transpose, op_id = 3", 12, 20),
        op("aten::addmm, seq = 4, op_id = 5", 40, 90),
        op("AddmmBackward0, seq = 4, op_id = 39", 200, 210, tid=2),
        op("TBackward0, seq = 3, op_id = 56", 220, 230, tid=2),
    )
    assert found == [(None, None)] * 4 + [(3, "linked"), (1, "linked")]


def test_a_range_that_is_not_known_to_be_a_mark_is_a_forward_op() -> None:
    found = links(op("aten::mm, seq = 4", 0, 10, is_mark=None), op("MmBackward0, seq = 4", 40, 50, tid=2, is_mark=None))
    assert found == [(None, None), (0, "linked")]


def test_the_engines_ranges_go_with_the_node_inside_them() -> None:
    found = links(
        op("aten::addmm, seq = 4, op_id = 5", 0, 90),
        op("autograd::engine::evaluate_function: AddmmBackward0, op_id = 38", 190, 220, tid=2),
        op("AddmmBackward0, seq = 4, op_id = 39", 200, 210, tid=2),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad, op_id = 52", 230, 250, tid=2),
        op("torch::autograd::AccumulateGrad, op_id = 53", 235, 245, tid=2),
    )
    assert found[1:] == [(0, "by nesting"), (0, "linked"), (None, "no seq"), (None, "no seq")]


def test_a_known_forward_thread_decides() -> None:
    found = links(
        op("aten::mm, seq = 4", 0, 10, tid=1),
        op("aten::mm, seq = 4", 20, 30, tid=3),
        op("MmBackward0, seq = 4, fwd_tid = 1", 40, 50, tid=2),
        op("MmBackward0, seq = 4, fwd_tid = 3", 60, 70, tid=2),
        op("MmBackward0, seq = 4, fwd_tid = 9", 80, 90, tid=2),
    )
    assert found[2:] == [(0, "linked"), (1, "linked"), (None, "no forward in the trace")]


def test_several_threads_with_one_seq_are_ambiguous_and_the_nearest_is_taken() -> None:
    found = links(
        op("aten::mm, seq = 4", 0, 10, tid=1),
        op("aten::mm, seq = 4", 20, 30, tid=3),
        op("MmBackward0, seq = 4", 40, 50, tid=2),
    )
    assert found[2] == (1, "ambiguous: several threads used this seq")


def test_the_name_of_the_node_may_tell_the_thread() -> None:
    found = links(
        op("aten::native_layer_norm, seq = 4", 0, 10, tid=1),
        op("aten::relu, seq = 4", 20, 30, tid=3),
        op("NativeLayerNormBackward0, seq = 4", 40, 50, tid=2),
        op("ReluBackward0, seq = 4", 60, 70, tid=2),
    )
    assert found[2:] == [(0, "linked"), (1, "linked")]


def test_a_seq_that_was_used_again_is_that_of_the_nearest_op_before() -> None:
    found = links(
        op("aten::mm, seq = 4", 0, 10),
        op("aten::mm, seq = 9", 11, 12),
        op("MmBackward0, seq = 4", 15, 20, tid=2),
        op("aten::relu, seq = 4", 30, 40),  # another thread of the same number
        op("aten::relu_, seq = 4", 41, 42),
        op("ReluBackward0, seq = 4", 45, 50, tid=2),
    )
    assert found[2] == (0, "linked")
    assert found[5] == (4, "ambiguous: the thread used this seq again")


def test_processes_do_not_mix() -> None:
    found = links(op("aten::mm, seq = 4", 0, 10, pid=2), op("MmBackward0, seq = 4", 20, 30))
    assert found[1] == (None, "no forward in the trace")


def test_an_op_that_comes_after_is_no_forward() -> None:
    found = links(
        op("MmBackward0, seq = 4", 20, 30, tid=2), op("aten::mm, seq = 4", 20, 30), op("aten::mm, seq = 4", 40, 50)
    )
    assert found[0] == (None, "no forward in the trace")


def test_seq_0_inside_a_backward_of_old_torch_says_nothing() -> None:
    found = links(
        op("embedding, seq = 0", 0, 10),
        op("MmBackward, seq = 5", 20, 40, tid=2),
        op("mm, seq = 0", 25, 35, tid=2),
        op("EmbeddingBackward, seq = 0", 50, 60, tid=2),
    )
    assert found[3] == (0, "linked")


def test_an_op_inside_a_backward_may_be_a_forward_op_of_its_own() -> None:
    # create_graph=True: the backward of a backward.
    found = links(
        op("aten::pow, seq = 4, op_id = 1", 0, 10),
        op("PowBackward0, seq = 4, op_id = 2", 20, 40, tid=2),
        op("aten::mul, seq = 0, op_id = 3", 25, 35, tid=2),
        op("MulBackward0, seq = 0, op_id = 4", 50, 60, tid=2),
    )
    assert found[3] == (2, "linked")


def test_ops_that_make_no_node_are_not_taken_for_the_one_that_did() -> None:
    found = links(
        op("to, seq = 7", 0, 50),
        op("empty, seq = 7", 10, 20),
        op("torch::autograd::CopyBackwards, seq = 7", 60, 70, tid=2),
        op("torch::autograd::GraphRoot, seq = 7", 55, 58, tid=2),
    )
    assert found[2:] == [(0, "linked"), (None, "made by the backward itself")]


def test_a_trace_without_backward_has_empty_columns_of_the_same_types() -> None:
    none, some = (
        autograd(nest(ops(ranges(row, kind=None)))) for row in (op("a", 0, 1), op("MmBackward0, seq = 1", 0, 1))
    )
    assert none.schema == some.schema
    assert none["link"].null_count() == 1


def test_backward_time_stands_beside_its_forward_once() -> None:
    frame = ranges(
        op("aten::mm, seq = 4", 0, 10),
        op("autograd::engine::evaluate_function: MmBackward0", 20, 50, tid=2),
        op("MmBackward0, seq = 4", 25, 45, tid=2),
        kind=None,
    )
    nested = nest(ops(frame))
    made = table("calls", [{"rank": 0, "pid": 1, "tid": 2, "start_ns": 30, "correlation_id": 1}])
    ran = table("work", [{"rank": 0, "pid": 1, "kind": "kernel", "start_ns": 90, "end_ns": 97, "correlation_id": 1}])
    launched = launches(nested, made, ran)

    rows = averages(autograd(nested), launched.work).rows_by_key("name", named=True, unique=True)

    assert (rows["aten::mm"]["backward_cpu_ns"], rows["aten::mm"]["backward_device_ns"]) == (30, 7)
    assert rows["MmBackward0"]["backward_cpu_ns"] == 0
    assert rows["MmBackward0"]["device_ns"] == 7


# --- a transformer of 2020 under emit_nvtx and PyProf: forward and backward on two threads

# Backward -> the op whose node it is, and how often.
TRANSFORMER = {
    ("ViewBackward", "view"): 18,
    ("AddBackward0", "add_"): 11,
    ("AddBackward0", "add"): 5,
    ("TransposeBackward0", "transpose"): 10,
    ("MmBackward", "mm"): 9,
    ("TBackward", "t"): 9,
    ("UnsafeViewBackward", "_unsafe_view"): 9,
    ("FusedDropoutBackward", "_fused_dropout"): 9,
    ("torch::autograd::CopyBackwards", "contiguous"): 6,
    ("BmmBackward", "bmm"): 4,
    ("NativeLayerNormBackward", "native_layer_norm"): 4,
    ("MulBackward0", "mul"): 3,
    ("SoftmaxBackward", "_softmax"): 2,
    ("LogSoftmaxBackward", "_log_softmax"): 2,
    ("ReluBackward0", "relu"): 2,
    ("SplitBackward", "split"): 2,
    ("EmbeddingBackward", "embedding"): 2,
    ("NllLossBackward", "nll_loss_forward"): 1,
}


def test_every_backward_op_of_a_recorded_transformer_finds_its_forward(traces_dir: Path) -> None:
    frame, made, ran = nvprof_tables(traces_dir / "nvprof" / "lm_emit_nvtx.sql")

    nested = autograd(nest(ops(frame)))
    launched = launches(nested, made, ran)

    names = nested["name"].cast(pl.String)
    linked = nested.with_row_index("row").filter(pl.col("forward").is_not_null())
    pairs = Counter(zip(names.gather(linked["row"]), names.gather(linked["forward"]), strict=True))
    assert pairs == TRANSFORMER
    assert (linked["link"] == "linked").all()
    assert (linked["tid"] != nested["tid"].gather(linked["forward"])).all()
    assert (linked["seq"] == nested["seq"].gather(linked["forward"])).all()
    places = nested.select("tid", "start_ns").rows()
    found = {places[row]: places[forward] for row, forward in linked.select("row", "forward").rows()}
    assert found == begun_last_with_the_number(frame)
    rest = Counter(nested.filter(pl.col("forward").is_null())["link"].drop_nulls().to_list())
    assert rest == {"no seq": 28, "made by the backward itself": 1}

    found = coverage(nested, launched.calls, launched.work)
    assert (found.linked, found.backward) == (108, 108)
    assert found.work_in_range.count == found.work_in_range.of == 284


def test_device_time_of_the_transformer_is_counted_once_by_every_sum(traces_dir: Path) -> None:
    frame, made, ran = nvprof_tables(traces_dir / "nvprof" / "lm_emit_nvtx.sql")
    nested = autograd(nest(ops(frame)))
    launched = launches(nested, made, ran)
    nested = phases(modules(nested))
    took = int((ran["end_ns"] - ran["start_ns"]).sum())

    for by in ("name", "shape", "module", "phase", ["phase", "name"]):
        assert averages(nested, launched.work, by)["self_device_ns"].sum() == took
    for by in ("stream", "kernel"):
        assert averages(nested, launched.work, by)["device_ns"].sum() == took


def begun_last_with_the_number(frame: pl.DataFrame) -> dict[tuple[int, int], tuple[int, int]]:
    """Backward op -> the last op with its number on the other thread before it, by texts alone, looking at all.

    But for what only makes a tensor: `contiguous` calls these before its node takes the number they all show.
    """
    numbered = []
    for tid, start, text in frame.select("tid", "start_ns", "text").rows():
        if found := re.fullmatch(r"(.+), seq = (\d+)(, sizes = .*)?", text):
            numbered.append((tid, start, found[1], int(found[2])))
    backward = [row for row in numbered if "Backward" in row[2]]
    forward = [row for row in numbered if "Backward" not in row[2] and row[2] not in ("empty", "empty_like")]
    links = {}
    for tid, start, _, number in backward:
        before = [(at, other) for other, at, _, seq in forward if other != tid and seq == number and at < start]
        if before:
            at, other = max(before)
            links[tid, start] = other, at
    return links


def nvprof_tables(path: Path) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Ranges, calls and kernels, as plainly as they can be read."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        texts = dict(file.execute("SELECT _id_, value FROM StringTable"))
        markers = "SELECT flags, timestamp, id, objectId, name FROM CUPTI_ACTIVITY_KIND_MARKER ORDER BY timestamp, _id_"
        begun: dict[int, dict] = {}
        for flags, time, number, owner, name in file.execute(markers):
            pid, tid, _ = struct.unpack("<III", owner)
            if flags & 2:
                begun[number] = {"pid": pid, "tid": tid, "start_ns": time, "text": texts[name]}
            else:
                begun[number]["end_ns"] = time
        runtime = "SELECT processId, threadId & 0xffffffff, start, end, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        names = ("pid", "tid", "start_ns", "end_ns", "correlation_id")
        made = [dict(zip(names, row, strict=True)) for row in file.execute(runtime)]
        kernels = "SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
        ran = [dict(zip(("start_ns", "end_ns", "correlation_id"), row, strict=True)) for row in file.execute(kernels)]
    of_file = {"rank": 0, "pid": made[0]["pid"]}
    return (
        ranges(*begun.values(), kind=None, rank=0),
        table("calls", made, rank=0),
        table("work", ran, kind="kernel", **of_file),
    )
