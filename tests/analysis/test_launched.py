"""From call to work, and copies: by example, against loops in plain Python, and recorded traces' own figures."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

import opspan
import twins
from analysis.frames import maybe_times, places, table
from opspan.analysis import Analysis, launches, nest
from opspan.analysis.copies import copies
from opspan.analysis.launched import delays, queues
from properties import property_of

MEMORY = {"rank": 0, "kind": "memcpy", "device_id": 0, "copy_from": "pinned", "copy_to": "device", "bytes": 100}


def attributed(calls: list[dict], work: list[dict]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Calls and work of one process, if nothing else is said, with the call of each work."""
    place = {"rank": 0, "pid": 1}
    made = table("calls", calls, **place, tid=1)
    ran = table("work", work, **place, kind="kernel", device_id=0, context_id=1, stream_id=7)
    found = launches(nest(table("ranges", [])), made, ran)
    return found.calls, found.work


def call(number: int | None, start: int | None, end: int | None) -> dict:
    return {"correlation_id": number, "start_ns": start, "end_ns": end}


def queued(calls: list[dict], work: list[dict]) -> list[tuple]:
    return queues(*attributed(calls, work)).select("stream_id", "time_ns", "queued").rows()


class TestDelays:
    def test_of_a_kernel(self) -> None:
        found = delays(*attributed([call(7, 10, 14)], [call(None, 0, 1), call(7, 50, 53)]))

        assert found.to_dicts() == [
            {"work": 1, "call": 0, "is_first": True, "delay_ns": 36, "ahead_ns": 40, "is_short": True}
        ]

    def test_work_may_begin_before_its_call_returns(self) -> None:
        found = delays(*attributed([call(7, 10, 30)], [call(7, 20, 90)]))

        assert found.select("delay_ns", "ahead_ns", "is_short").rows() == [(-10, 10, False)]

    @pytest.mark.parametrize(("took", "is_short"), [(3, True), (4, False), (5, False)])
    def test_short_is_what_took_less_time_than_its_call(self, took: int, is_short: bool) -> None:
        assert delays(*attributed([call(7, 10, 14)], [call(7, 50, 50 + took)]))["is_short"].to_list() == [is_short]

    def test_of_a_graph_the_first_work_says_how_long_the_launch_took_and_all_of_it_whether_it_is_short(self) -> None:
        nodes = [call(7, 60, 63), call(7, 40, 43), call(7, 40, 44), call(8, 90, 99)]

        found = delays(*attributed([call(7, 10, 20), call(8, 20, 30)], nodes))

        assert found["is_first"].to_list() == [False, True, False, True]
        assert found["delay_ns"].to_list() == [40, 20, 20, 60]
        assert found["is_short"].to_list() == [False, False, False, True]

    def test_waits_and_the_profiler_are_not_launched(self) -> None:
        ran = [call(7, 20, 30) | {"kind": "sync"}, call(7, 20, 30) | {"is_overhead": True}]

        assert delays(*attributed([call(7, 10, 14)], ran)).rows() == []

    def test_what_is_not_known_is_null(self) -> None:
        made = [call(1, None, 9), call(2, 5, None), call(3, 5, 9), call(4, 5, 9)]
        ran = [call(1, 10, 12), call(2, 10, 12), call(3, None, 12), call(4, 10, None)]

        found = delays(*attributed(made, ran)).drop("work", "call").rows()

        assert found == [
            (True, 1, None, None),
            (True, None, 5, None),
            (None, None, None, None),
            (True, 1, 5, None),
        ]

    def test_a_work_whose_begin_is_not_known_is_not_the_first(self) -> None:
        found = delays(*attributed([call(7, 10, 20)], [call(7, None, 30), call(7, 40, 50)]))

        assert found["is_first"].to_list() == [None, True]

    def test_work_that_is_too_long_together_is_not_short(self) -> None:
        whole = [call(7, -1, 2**63 - 1)] * 2

        assert delays(*attributed([call(7, -5, 0)], whole))["is_short"].to_list() == [False, False]

    def test_times_that_are_too_far_apart(self) -> None:
        found = delays(*attributed([call(7, -(2**63), -(2**63))], [call(7, 2**63 - 1, 5)]))

        assert found.drop("work", "call").rows() == [(True, twins.LAST, twins.LAST, False)]


class TestQueues:
    def test_a_call_is_in_the_queue_until_its_work_begins(self) -> None:
        made = [call(1, 0, 5), call(2, 10, 15), call(3, 20, 25)]

        found = queued(made, [call(1, 12, 30), call(2, 30, 40), call(3, 40, 50)])

        assert found == [(7, 0, 1), (7, 10, 2), (7, 12, 1), (7, 20, 2), (7, 30, 1), (7, 40, 0)]

    def test_what_comes_and_goes_at_once_changes_nothing(self) -> None:
        made = [call(1, 0, 5), call(2, 10, 15), call(3, 12, 15)]

        assert queued(made, [call(1, 10, 30), call(2, 30, 40), call(3, 12, 13)]) == [(7, 0, 1), (7, 30, 0)]

    def test_a_graph_counts_once_for_each_stream(self) -> None:
        nodes = [call(1, 20, 21) | {"stream_id": 8}, call(1, 30, 31), call(1, 12, 14), call(1, 14, 15)]

        assert queued([call(1, 0, 5)], nodes) == [(7, 0, 1), (7, 12, 0), (8, 0, 1), (8, 20, 0)]

    @pytest.mark.parametrize("other", [{"device_id": 1}, {"context_id": 2}, {"stream_id": 8}])
    def test_streams_are_apart(self, other: dict) -> None:
        made = [call(1, 0, 5), call(2, 1, 5)]

        assert [row[1:] for row in queued(made, [call(1, 8, 9), call(2, 9, 10) | other])] == [
            (0, 1),
            (8, 0),
            (1, 1),
            (9, 0),
        ]

    def test_what_is_not_known_is_in_no_queue(self) -> None:
        made = [call(1, None, 5), call(2, 1, None), call(3, 2, 3)]

        assert queued(made, [call(1, 8, 9), call(2, 9, None), call(3, None, 10), call(9, 1, 2)]) == [
            (7, 1, 1),
            (7, 9, 0),
        ]

    def test_work_that_began_before_its_call_was_in_no_queue(self) -> None:
        assert queued([call(1, 10, 15), call(2, 20, 25)], [call(1, 5, 30), call(2, 30, 40)]) == [(7, 20, 1), (7, 30, 0)]


class TestCopies:
    def test_are_summed_by_direction(self) -> None:
        rows = [
            {"start_ns": 0, "end_ns": 10},
            {"start_ns": 5, "end_ns": 35},
            {"start_ns": 0, "end_ns": 10, "device_id": 1},
            {"start_ns": 0, "end_ns": 10, "copy_from": "device", "copy_to": "pinned", "bytes": 10},
            {"start_ns": 0, "end_ns": 10, "copy_from": "device", "bytes": 20},
            {"start_ns": 0, "end_ns": 10, "copy_from": "device", "bytes": 40, "peer_device_id": 1},
        ]

        found = copies(table("work", rows, **MEMORY))

        assert found.rows() == [
            (0, 0, None, "device", "device", 1, 20, 10, 2e9),
            (0, 0, None, "device", "pinned", 1, 10, 10, 1e9),
            (0, 0, None, "pinned", "device", 2, 200, 40, 5e9),
            (0, 0, 1, "device", "device", 1, 40, 10, 4e9),
            (0, 1, None, "pinned", "device", 1, 100, 10, 1e10),
        ]

    @pytest.mark.parametrize(
        "odd",
        [
            {"kind": "memset"},
            {"is_overhead": True},
            {"bytes": None},
            {"bytes": 0},
            {"bytes": -5},
            {"end_ns": 0},
            {"end_ns": -1},
            {"end_ns": None},
            {"start_ns": None},
        ],
    )
    def test_without_a_size_or_a_duration_do_not_count(self, odd: dict) -> None:
        usual = {"start_ns": 0, "end_ns": 10}

        found = copies(table("work", [usual, usual | odd], **MEMORY))

        assert found["count"].to_list() == [1]
        assert copies(table("work", [usual | odd], **MEMORY)).rows() == []

    def test_sums_that_are_too_large(self) -> None:
        rows = [{"start_ns": -(2**63), "end_ns": 2**63 - 1, "bytes": 2**63 - 1}] * 2

        assert copies(table("work", rows, **MEMORY)).rows()[0][-4:] == (2, twins.LAST, twins.LAST, 1e9)


# --- in plain Python

IDS = st.sampled_from([1, 1, 2, 3, None])
call_rows = st.lists(
    st.fixed_dictionaries({**places, "start_ns": maybe_times, "end_ns": maybe_times, "correlation_id": IDS}), max_size=6
)
work_rows = st.lists(
    st.fixed_dictionaries(
        {
            "rank": places["rank"],
            "pid": places["pid"],
            "device_id": st.sampled_from([0, 0, 1, None]),
            "stream_id": st.sampled_from([7, 7, 8, None]),
            "start_ns": maybe_times,
            "end_ns": maybe_times,
            "correlation_id": IDS,
            "kind": st.sampled_from(["kernel", "kernel", "memcpy", "memcpy", "sync", None]),
            "is_overhead": st.sampled_from([False, None, False, True]),
            "bytes": st.sampled_from([0, 1, 100, None, twins.LAST]),
            "copy_from": st.sampled_from(["device", "pinned", None]),
            "copy_to": st.sampled_from(["device", "device", None]),
        }
    ),
    max_size=10,
)


@property_of(call_rows, work_rows, few=150, many=600)
def test_delays_and_queues(calls: list[dict], work: list[dict]) -> None:
    found = launches(nest(table("ranges", [])), table("calls", calls), table("work", work))
    in_order = queues(found.calls, found.work)

    delayed = twins.delays(found.calls.to_dicts(), found.work.to_dicts())
    assert delays(found.calls, found.work).to_dicts() == delayed
    changes: dict[tuple, list[tuple]] = {}
    for *stream, time, length in in_order.rows():
        changes.setdefault(tuple(stream), []).append((time, length))
    assert changes == twins.queues(found.calls.to_dicts(), found.work.to_dicts())


@property_of(work_rows, few=100, many=400)
def test_copies(work: list[dict]) -> None:
    found = copies(table("work", work)).rows()

    assert {row[:5]: row[5:] for row in found} == twins.copies(table("work", work).to_dicts())


# --- recorded traces


def recorded(traces_dir: Path, name: str) -> tuple[Path, Analysis]:
    path = traces_dir / name
    if not path.exists():
        pytest.skip(f"{name} is not among the recorded traces")
    return path, Analysis(opspan.load(path))


RAN = """
CREATE TEMP VIEW ran AS
    SELECT called.start AS called, called.end AS returned, work.* FROM (
        SELECT correlationId, start, end, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL
        UNION ALL SELECT correlationId, start, end, streamId FROM CUPTI_ACTIVITY_KIND_MEMCPY
        UNION ALL SELECT correlationId, start, end, streamId FROM CUPTI_ACTIVITY_KIND_MEMSET
    ) AS work JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS called USING (correlationId);
CREATE TEMP TABLE waiting AS
    SELECT streamId, called, MIN(start) AS began FROM ran GROUP BY streamId, correlationId;
CREATE TEMP VIEW length AS
    SELECT streamId, time, SUM(SUM(change)) OVER (PARTITION BY streamId ORDER BY time) AS queued FROM (
        SELECT streamId, called AS time, 1 AS change FROM waiting
        UNION ALL SELECT streamId, began, -1 FROM waiting
    ) GROUP BY streamId, time HAVING SUM(change) != 0;
"""
DELAYED = "SELECT COUNT(*), COUNT(DISTINCT correlationId), SUM(start - returned), SUM(start - called) FROM ran"
SHORT = """
SELECT SUM(works) FROM (SELECT COUNT(*) AS works, SUM(end - start) AS took, MAX(returned - called) AS launch FROM ran
    GROUP BY correlationId) WHERE took < launch
"""
COPIED = """
SELECT srcKind, dstKind, COUNT(*), SUM(bytes), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY
    WHERE bytes > 0 AND end > start GROUP BY srcKind, dstKind
"""
KINDS = {0: "pageable", 1: "pinned", 2: "device"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch_lm_2025.sqlite", "graph_nodes.sqlite"])
def test_figures_are_those_of_the_files_own_sql(name: str, traces_dir: Path) -> None:
    path, found = recorded(traces_dir, f"nsys/{name}")
    delayed, in_order = found.delays, found.queues

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        file.executescript(RAN)
        of_all = file.execute(DELAYED).fetchone()
        (short,) = file.execute(SHORT).fetchone()
        most = dict(file.execute("SELECT streamId, MAX(queued) FROM length GROUP BY streamId"))
        sums = dict(file.execute("SELECT streamId, SUM(time % 1000 * queued) FROM length GROUP BY streamId"))
        copied = {(KINDS[row[0]], KINDS[row[1]]): row[2:] for row in file.execute(COPIED)}

    columns = (pl.len(), pl.col("is_first").sum().alias("first"), pl.col("delay_ns").sum(), pl.col("ahead_ns").sum())
    assert delayed.select(columns).row(0) == of_all
    assert delayed["is_short"].sum() == short
    by_stream = in_order.group_by("stream_id")
    assert dict(by_stream.agg(pl.col("queued").max()).iter_rows()) == most
    assert dict(by_stream.agg((pl.col("time_ns") % 1000 * pl.col("queued")).sum()).iter_rows()) == sums
    assert in_order["queued"].min() == 0
    assert {row[3:5]: row[5:8] for row in found.copies.rows()} == copied


def test_figures_of_a_torch_trace_are_those_of_its_json(traces_dir: Path) -> None:
    path, found = recorded(traces_dir, "kineto/ns_resolution.pt.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    of = {name: [event for event in events if event.get("cat") in name.split()] for name in (WORK, "cuda_runtime")}
    called = {event["args"]["correlation"]: event for event in of["cuda_runtime"]}
    pairs = [(called[event["args"]["correlation"]], event) for event in of[WORK]]

    delayed = found.delays

    assert delayed.height == len(pairs) == 6095
    assert delayed["ahead_ns"].sum() == sum(ns(event["ts"]) - ns(launch["ts"]) for launch, event in pairs)
    expected = [ns(event["ts"]) - ns(launch["ts"]) - ns(launch["dur"]) for launch, event in pairs]
    assert delayed["delay_ns"].sum() == sum(expected)
    assert delayed["is_short"].sum() == sum(event["dur"] < launch["dur"] for launch, event in pairs)
    # HTA's counter: calls up, work down.
    changes = Counter()
    for launch, event in pairs:
        changes[ns(launch["ts"])] += 1
        changes[ns(event["ts"])] -= 1
    length, lengths = 0, {}
    for time in sorted(changes):
        length += changes[time]
        lengths[time] = length
    assert max(lengths.values()) == 1022
    assert dict(found.queues.select("time_ns", "queued").iter_rows()) == {
        time: lengths[time] for time in lengths if changes[time]
    }
    moved = [event for event in of[WORK] if event["cat"] == "gpu_memcpy"]
    sums = (len(moved), sum(event["args"]["bytes"] for event in moved), sum(ns(event["dur"]) for event in moved))
    assert found.copies.rows()[0][5:8] == sums


WORK = "kernel gpu_memcpy gpu_memset"


def ns(microseconds: Decimal) -> int:
    return int(microseconds * 1000)
