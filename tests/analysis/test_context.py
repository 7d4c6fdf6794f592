"""The context of a range (module, step, phase), and sums by it."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.frames import ranges, table
from opspan.analysis import analyse, autograd, averages, coverage, launches, modules, nest, ops, phases, steps
from opspan.errors import UsageError
from opspan.tables import Metadata
from opspan.trace import Trace


def op(text: str, start: int, end: int, tid: int = 1, **other) -> dict:
    return {"text": text, "start_ns": start, "end_ns": end, "tid": tid, **other}


def read(*rows: dict) -> pl.DataFrame:
    return autograd(nest(ops(ranges(*rows, kind=None))))


# --- modules


def test_a_range_is_in_its_innermost_module_and_the_backward_in_its_forwards() -> None:
    frame = read(
        op("Net, class = Net", 0, 100),
        op("Net.fc, class = Linear", 10, 50),
        op("aten::addmm, seq = 4", 20, 30),
        op("aten::relu, seq = 5", 60, 70),
        op("autograd::engine::evaluate_function: AddmmBackward0", 200, 240, tid=2),
        op("AddmmBackward0, seq = 4", 210, 230, tid=2),
        op("aten::mm", 215, 220, tid=2),
        op("torch::autograd::AccumulateGrad", 250, 260, tid=2),
    )
    assert modules(frame)["module"].to_list() == ["Net", "Net.fc", "Net.fc", "Net", "Net.fc", "Net.fc", "Net.fc", None]


def test_fsdp_says_where_a_module_begins_and_ends() -> None:
    frame = read(
        op("FSDP::pre_forward (blocks.3._checkpoint_wrapped_module)", 0, 10),
        op("aten::all_gather", 2, 8),
        op("aten::mm", 20, 30),
        op("FSDP::pre_forward (blocks.3.inner)", 40, 50),
        op("aten::relu", 60, 70),
        op("FSDP::post_forward (blocks.3.inner)", 80, 90),
        op("aten::mm", 100, 110),
        op("FSDP::post_forward (blocks.3._checkpoint_wrapped_module)", 120, 130),
        op("aten::mm", 140, 150),
        op("FSDP::pre_forward (blocks.4)", 160, 170),  # never left
        op("aten::mm", 180, 190),
    )
    outer, inner = "blocks.3", "blocks.3.inner"
    assert modules(frame)["module"].to_list() == [outer] * 3 + [inner] * 3 + [outer] * 2 + [None, "blocks.4", None]


def test_fsdp_inside_a_module_and_the_other_way_round() -> None:
    frame = read(
        op("Net, class = Net", 0, 100),
        op("FSDP::pre_forward (fc)", 10, 12),
        op("Net.fc, class = Linear", 20, 50),
        op("aten::mm", 30, 40),
        op("FSDP::post_forward (fc)", 60, 62),
        op("aten::mm", 70, 80),
    )
    assert modules(frame)["module"].to_list() == ["Net", "fc", "Net.fc", "Net.fc", "fc", "Net"]


def test_fsdp_inside_the_range_of_its_module() -> None:
    frame = read(
        op("Net, class = FSDPNet", 0, 100),
        op("FSDP::root_pre_forward", 2, 4),
        op("Net.blocks.0, class = FSDPLinear", 10, 90),
        op("FSDP::pre_forward (blocks.0)", 20, 30),
        op("aten::mm", 40, 50),
        op("FSDP::post_forward (blocks.0)", 60, 70),
    )
    assert modules(frame)["module"].to_list() == ["Net"] * 2 + ["Net.blocks.0"] * 4


def test_dlprofs_stack_names_the_classes() -> None:
    stack = "/<module>/Net::_call_impl/Net::forward/Conv2d::_call_impl(2)/Conv2d::forward/conv2d"
    frame = read(
        op(f"{{'traceMarker': ['net.py:9'], 'funcStack': '{stack}'}}", 0, 100),
        op("aten::conv2d", 10, 50),
        op("{'traceMarker': ['net.py:9'], 'funcStack': '/<module>/randn'}", 200, 300),
    )
    assert modules(frame)["module"].to_list() == ["Net.Conv2d", "Net.Conv2d", None]


# --- steps


def test_a_step_has_what_begins_in_it_on_every_thread_of_its_process() -> None:
    frame = read(
        op("ProfilerStep#9", 0, 100),
        op("aten::mm", 10, 20),
        op("MmBackward0, seq = 1", 30, 120, tid=2),
        op("ProfilerStep#10", 100, 200),
        op("aten::mm", 150, 160, tid=3),
        op("aten::mm", 50, 60, pid=2),
        op("aten::mm", 300, 310),
    )
    assert steps(frame)["step"].to_list() == ["ProfilerStep#9"] * 3 + ["ProfilerStep#10"] * 2 + [None] * 2


def test_steps_may_have_names_of_their_own() -> None:
    frame = read(op("iteration 1", 0, 100), op("aten::mm", 10, 20))
    assert steps(frame)["step"].to_list() == [None, None]
    assert steps(frame, r"^iteration \d+")["step"].to_list() == ["iteration 1"] * 2


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        steps(read(op("a", 0, 1)), "(")


# --- phases


def test_the_nearest_range_that_says_a_phase_decides() -> None:
    frame = read(
        op("aten::mm, seq = 1", 0, 10),
        op("MmBackward0, seq = 1", 20, 90, tid=2),
        op("aten::mm", 30, 40, tid=2),
        op("Optimizer.step#Adam.step", 100, 150),
        op("aten::add_", 110, 120),
        op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 200, 250),
        op("aten::stack", 210, 220),
        op("Forward", 300, 400),
        op("tokens", 310, 390),
        op("tokens", 500, 510),
    )
    assert phases(frame)["phase"].to_list() == [
        *("forward", "backward", "backward", "optimizer", "optimizer", "data", "data", "forward", "forward", None),
    ]


# --- sums


@pytest.fixture
def trace() -> Trace:
    rows = [
        op("Net, class = Net", 0, 100),
        op("aten::linear, sizes = [[2]]", 10, 60),
        op("aten::mm, sizes = [[2]]", 20, 40),
        op("aten::mm, sizes = [[3]]", 70, 80),
        {"text": "here", "start_ns": 5, "is_mark": True},
    ]
    calls = [{"tid": 1, "start_ns": start, "end_ns": start + 1, "correlation_id": start} for start in (15, 25, 75, 90)]
    work = [
        {"kind": "kernel", "name": "gemm", "stream_id": 7, "start_ns": 100, "end_ns": 130, "correlation_id": 25},
        {"kind": "kernel", "name": "gemm", "stream_id": 8, "start_ns": 130, "end_ns": 135, "correlation_id": 75},
        {"kind": "memcpy", "name": "HtoD", "stream_id": 7, "start_ns": 90, "end_ns": 100, "correlation_id": 15},
        {"kind": "kernel", "name": "lost", "stream_id": 7, "start_ns": 200, "end_ns": 300, "correlation_id": 1},
        {"kind": "sync", "name": "stream", "stream_id": 7, "start_ns": 0, "end_ns": 900, "correlation_id": 90},
        {"kind": "other", "name": "overhead", "start_ns": 0, "end_ns": 900, "correlation_id": 90, "is_overhead": True},
    ]
    return Trace(
        (Metadata("test"),),
        ranges=ranges(*rows, kind=None),
        calls=table("calls", calls, rank=0, pid=1),
        work=table("work", work, rank=0, pid=1, device_id=0, context_id=1, is_overhead=False),
    )


def test_sums_by_what_ranges_say(trace: Trace) -> None:
    found = analyse(trace)
    columns = ("count", "cpu_ns", "self_cpu_ns", "device_ns", "self_device_ns")

    by_name = averages(found.ranges, found.work).select("name", *columns)
    by_shape = averages(found.ranges, found.work, "shape").filter(pl.col("name") == "aten::mm")
    by_module = averages(found.ranges, found.work, "module").select("module", *columns)

    assert list(by_name.iter_rows()) == [
        ("aten::mm", 2, 30, 30, 35, 35),
        ("aten::linear", 1, 50, 30, 40, 10),
        ("Net", 1, 100, 40, 45, 0),
    ]
    assert list(by_shape.select("sizes", *columns).iter_rows()) == [
        ("[[2]]", 1, 20, 20, 30, 30),
        ("[[3]]", 1, 10, 10, 5, 5),
    ]
    assert list(by_module.iter_rows()) == [("Net", 4, 180, 100, 120, 45)]


def test_sums_of_work(trace: Trace) -> None:
    found = analyse(trace)

    by_stream = averages(found.ranges, found.work, "stream").select("stream_id", "count", "device_ns")
    by_kernel = averages(found.ranges, found.work, "kernel").select("name", "count", "device_ns")

    assert list(by_stream.iter_rows()) == [(7, 3, 140), (8, 1, 5)]
    assert list(by_kernel.iter_rows()) == [("lost", 1, 100), ("gemm", 2, 35), ("HtoD", 1, 10)]


@pytest.mark.parametrize("by", ["color", [], ["name", "stream"]])
def test_sums_by_what_there_is_not_are_refused(trace: Trace, by: str | list[str]) -> None:
    found = analyse(trace)
    with pytest.raises(UsageError, match="expected one of name, shape, module, step, phase, function, stream, kernel"):
        averages(found.ranges, found.work, by)


def test_sums_by_what_was_not_looked_for_say_what_to_call() -> None:
    frame = nest(ranges(("a", 0, 1)))
    with pytest.raises(UsageError, match=r"call opspan\.analysis\.modules"):
        averages(frame, launches(frame, table("calls", []), table("work", [])).work, "module")


def test_coverage_does_not_take_a_graph_that_was_traced_as_one_for_its_ops() -> None:
    where = {"rank": 0, "pid": 1, "tid": 1}
    calls = table("calls", [{"start_ns": 10 + n, "end_ns": 11 + n, "correlation_id": n} for n in range(2)], **where)
    rows = [("graph", 20, 117), ("kernel", 117, 120)]
    work = [
        {"kind": kind, "start_ns": start, "end_ns": end, "correlation_id": n, "device_id": 0}
        for n, (kind, start, end) in enumerate(rows)
    ]
    ranges_ = nest(ranges(("step", 0, 130)))
    found = launches(ranges_, calls, table("work", work, rank=0, pid=1))

    figures = coverage(ranges_, found.calls, found.work)

    assert figures.lines()[:2] == [
        "3.0% of device time belongs to a range (1 of 2 kernels and copies)",
        "100.0% of device time has its launch call (2 of 2 kernels and copies)",
    ]
    assert figures.lines()[2].startswith("97.0% of device time is in 1 replay of graphs that were traced as wholes")


def test_coverage_counts_what_is_left_over(trace: Trace) -> None:
    found = analyse(trace)

    figures = coverage(found.ranges, found.calls, found.work)

    assert (figures.work_in_range.count, figures.work_in_range.of) == (3, 4)
    assert (figures.work_in_range.ns, figures.work_in_range.of_ns) == (45, 145)
    assert figures.calls_in_range.count == 4
    assert figures.lines() == [
        "31.0% of device time belongs to a range (3 of 4 kernels and copies)",
        "31.0% of device time has its launch call (3 of 4 kernels and copies)",
    ]


def test_an_analysed_trace_can_be_analysed_again(trace: Trace) -> None:
    once = analyse(trace)
    again = analyse(once)
    assert again.ranges.equals(once.ranges)
    assert again.work.equals(once.work)


def test_a_trace_of_nothing_has_every_column(trace: Trace) -> None:
    nothing, something = analyse(Trace((Metadata("test"),))), analyse(trace)
    for name in ("ranges", "calls", "work"):
        assert getattr(nothing, name).schema == getattr(something, name).schema
    assert averages(nothing.ranges, nothing.work).height == 0


# --- serving

VERIFY = "step[TARGET_VERIFY bs=2]"


def test_what_is_in_a_step_of_an_engine_has_its_phase() -> None:
    frame = read(
        op("step[EXTEND bs=2 toks=4096]", 0, 100, kind="user"),
        op("forward", 10, 90, kind="user"),
        op("aten::mm", 20, 30),
        op("data loading", 40, 50, kind="user"),
        op("aten::cat", 110, 120),
        op("data loading", 130, 140, kind="user"),
        op("step[IDLE bs=0]", 150, 190, kind="user"),
        op("aten::add", 160, 170),
        op("execute_diffusion_1_256x256", 200, 300, kind="user"),
        op("execute_context_1(4)_generation_2(2)", 210, 290, kind="user"),
        op("aten::mm", 220, 230),
        op("aten::mm", 220, 230, tid=2),  # on another thread
    )
    assert phases(frame)["phase"].to_list() == [
        *["prefill"] * 4,
        *("forward", "data"),
        *(None, "forward"),  # the label tells no phase
        *("diffusion", "mixed", "mixed"),
        "forward",
    ]


def test_a_range_is_in_the_step_of_the_engine_that_is_open_in_its_process() -> None:
    frame = read(
        op(VERIFY, 0, 100, kind="user"),
        op("aten::mm", 20, 30, tid=2),
        op("aten::mm", 120, 130),
        op("aten::mm", 20, 30, pid=2),
        op("ProfilerStep#1", 0, 100, pid=3, kind="step"),
        op(VERIFY, 10, 50, pid=3, kind="user"),
        op("aten::mm", 20, 30, pid=3),
    )
    assert steps(frame)["step"].to_list() == [VERIFY, VERIFY, None, None, *["ProfilerStep#1"] * 3]
    assert steps(frame, "VERIFY")["step"].to_list() == [VERIFY, VERIFY, None, None, None, VERIFY, VERIFY]
