"""The time that steps would take, by hand: one test for each rule of docs/analysis.md, "path"."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.test_path import SYNC, WHERE, kernel, launch, trace_of, would_take
from opspan.analysis.analysed import Analysis
from opspan.analysis.what_if import what_if

STEP_0, STEP_1 = (
    {"name": f"ProfilerStep#{number}", "start_ns": begin, "end_ns": begin + 100, "kind": "step"}
    for number, begin in enumerate((10, 110))
)
SLOW_HOST = (
    [launch(begin, number) for number, begin in enumerate((10, 30, 50))],
    [kernel(begin + 3, begin + 8, number) for number, begin in enumerate((10, 30, 50))],
    [{"name": "step", "start_ns": 0, "end_ns": 100}],
)
# The main thread, which has the number of the process, is done at 10, and another one at 30.
TWO_THREADS = ([], [], [("aten::mm", 0, 10), {"name": "log", "start_ns": 0, "end_ns": 30, "tid": 2}])
# Nobody knows who launched the kernel that the host waits for.
NO_LAUNCH = ([{"name": SYNC, "start_ns": 170, "end_ns": 205}], [{"start_ns": 160, "end_ns": 200}], [STEP_0, STEP_1])
OPS = ([], [], [STEP_0, STEP_1, ("aten::mm", 20, 60), ("aten::mm", 120, 140)])


@pytest.mark.parametrize(
    ("program", "by", "after"),
    [
        (SLOW_HOST, dict.fromkeys(("host", "call", "wait"), 0.0), [1 + 3 * 5]),  # the stream is left
        (TWO_THREADS, {"unknown": 2.0}, [10 + 2 * 20]),
        (TWO_THREADS, {"unknown": 0.5}, [10 + 10]),
        (NO_LAUNCH, {"unknown": 2.0}, [200, 2 * 150 + 40 + 10 - 200]),
        (OPS, {"aten::mm": 0.0}, [100 - 40, 100 - 20]),
    ],
)
def test_what_steps_would_take(program: tuple, by: dict[str, float], after: list[int]) -> None:
    assert would_take(trace_of(*program), by)["after_ns"].to_list() == after


def test_work_that_waits_for_several_begins_after_the_last_of_them() -> None:
    """Streams 7 and 8 have a kernel each, for which a third one waits by events. If the first takes no time any more,
    the third one waits for the second."""
    calls, work, marked = [], [], []
    for number, (stream, begin, end) in enumerate(((7, 12, 50), (8, 14, 40), (9, 16, 30)), 1):
        calls += [launch(2 * number, number, 2 * number + 1)]
        work += [kernel(begin, end, number, stream)]
        marked += [{"name": f"op {number}", "start_ns": 2 * number, "end_ns": 2 * number + 1}]
    for number, stream in ((4, 7), (5, 8)):
        said = f'{{"wait_on_stream": {stream}, "wait_on_cuda_event_record_corr_id": {number * 10}}}'
        calls += [
            {"name": "cudaEventRecord", "start_ns": 2 * number, "end_ns": 2 * number, "correlation_id": number * 10},
            {"name": "cudaStreamWaitEvent", "start_ns": 2 * number, "end_ns": 2 * number + 1, "correlation_id": number},
        ]
        work += [
            {"kind": "sync", "name": "Stream Wait Event", "stream_id": 9, "start_ns": 2 * number, "payload_json": said}
            | {"end_ns": 2 * number + 1, "correlation_id": number}
        ]
    calls += [launch(13, 6, 14), {"name": SYNC, "start_ns": 15, "end_ns": 63}]
    trace = trace_of(calls, [*work, kernel(51, 60, 6, 9)], marked)
    # The run begins at 2. The last kernel began 1 after the first was done, and the host went on 3 after it. The op
    # that takes no time any more has its launch in it, too: 1 of the host.
    assert would_take(trace, {"op 1": 1.0})["after_ns"].to_list() == [63 - 2]
    assert would_take(trace, {"op 1": 0.0})["after_ns"].to_list() == [40 + 9 + 3 - 2 - 1]


def test_a_moment_in_the_last_wait_moves_with_the_work_that_is_waited_for() -> None:
    calls = [launch(0, 1), {"name": SYNC, "start_ns": 3, "end_ns": 30}]
    calls += [launch(32, 2), {"name": SYNC, "start_ns": 36, "end_ns": 70}]
    found = Analysis(trace_of(calls, [kernel(5, 25, 1), kernel(35, 60, 2)], [("step", 0, 80)]))
    times = pl.DataFrame({**WHERE, "start_ns": [0, 65], "end_ns": [65, 80]}, schema_overrides={"rank": pl.Int32})
    rows = what_if(found.attributed, times, found.waits, found.path_graph, {"computing": 0.0}, found.meetings).steps
    # The first kernel saves 20, the second 25; of the second wait 5 are left of the 10 after its kernel, then 10 more.
    assert rows["after_ns"].to_list() == [65 - 45, 15]
