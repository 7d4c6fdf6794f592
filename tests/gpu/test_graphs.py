"""CUDA graphs that are captured and replayed while they are watched: what torch's file holds, and opspan's recording.

Only what the join of replays with their capture rests on is asserted; all else is kept as facts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

import opspan
from gpu.children import differences, fact
from gpu.conftest import Runs
from gpu.work_rows import Row, chrome_events, ns, of_chrome, of_trace

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("gpu")]

STREAMS = ("1", "2")
LAUNCHES = ("Launch", "Memcpy", "Memset")
WATCHERS = ("torch", "record")


def rows_of(runs: Runs, streams: str, watcher: str) -> list[Row]:
    run = runs("graphs", streams, watcher)
    assert run.ended.told["has_gpu"]
    if watcher == "torch":
        return of_chrome(run.folder / "torch.json")
    return of_trace(opspan.load(run.folder / "recorded").analysed)


def replays_of(rows: list[Row]) -> list[list[Row]]:
    """The work of each launch of a graph, in the order in which it began."""
    by_launch = defaultdict(list)
    for row in rows:
        if row.call is not None and "GraphLaunch" in row.call:
            by_launch[row.call_ns, row.correlation].append(row)
    return [
        sorted(found, key=lambda row: row.start_ns or 0)
        for _, found in sorted(by_launch.items(), key=lambda item: item[0])
    ]


def span_of(runs: Runs, streams: str, watcher: str, name: str) -> tuple[int, int]:
    """When the range of the program's began and ended, on the clock of the rows."""
    folder = runs("graphs", streams, watcher).folder
    if watcher == "torch":
        found = [one for one in chrome_events(folder / "torch.json") if one.get("cat") == "user_annotation"]
        spans = [(ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])) for one in found if one["name"] == name]
    else:
        spans = opspan.load(folder / "recorded").ranges.filter(name=name).select("start_ns", "end_ns").rows()
    [span] = spans
    return span


def captured_calls(runs: Runs, streams: str) -> list[dict[str, Any]]:
    """The launches of torch's file in the range `capture` that nothing ran of, in their order. Torch also fills the
    numbers of its generators there, which runs at once."""
    begin, end = span_of(runs, streams, "torch", "capture")
    at_once = {row.correlation for row in rows_of(runs, streams, "torch")}
    calls = [
        event
        for event in chrome_events(runs("graphs", streams, "torch").folder / "torch.json")
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and begin <= ns(event["ts"]) < end
        and is_launch(event["name"])
        and event["args"].get("correlation") not in at_once
    ]
    return sorted(calls, key=lambda event: ns(event["ts"]))


def is_launch(name: str) -> bool:
    return any(word in name for word in LAUNCHES) and "Graph" not in name


def eager_rows(runs: Runs, streams: str, watcher: str) -> list[Row]:
    begin, end = span_of(runs, streams, watcher, "eager")
    return [row for row in rows_of(runs, streams, watcher) if row.call_ns is not None and begin <= row.call_ns < end]


@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_replay_is_one_call_whose_kernels_have_no_op(runs: Runs, streams: str, watcher: str) -> None:
    rows = rows_of(runs, streams, watcher)
    replays = replays_of(rows)
    fact(
        "replays",
        streams=streams,
        watcher=watcher,
        counts=[len(one) for one in replays],
        ops=Counter(row.op for one in replays for row in one),
        calls=Counter(row.call for row in rows),
        streams_of_a_replay=Counter(row.stream for row in replays[0]) if replays else None,
        same_order=[[row.name for row in one] == [row.name for row in replays[0]] for one in replays],
        names=[row.name[:90] for row in replays[0]] if replays else None,
    )
    assert len(replays) == runs("graphs", streams, watcher).ended.told["replays"], Counter(row.call for row in rows)
    assert len({len(one) for one in replays}) == 1, [len(one) for one in replays]
    assert len({tuple(sorted((row.kind, row.name) for row in one)) for one in replays}) == 1
    assert {row.op for one in replays for row in one} == {None}


@pytest.mark.parametrize("streams", STREAMS)
def test_captured_launches_without_work_are_as_many_as_a_replay_has(runs: Runs, streams: str) -> None:
    rows, calls = rows_of(runs, streams, "torch"), captured_calls(runs, streams)
    replays = replays_of(rows)
    keys = Counter(key for event in calls for key in event["args"])
    file = runs("graphs", streams, "torch").folder / "torch.json"
    kernels = [event for event in chrome_events(file) if event.get("cat") == "kernel"]
    graph_names = Counter(event["name"] for event in chrome_events(file) if "Graph" in str(event.get("name")))
    fact(
        "capture",
        streams=streams,
        calls=Counter(event["name"] for event in calls),
        keys=keys,
        has_kernel_names="kernel" in keys,
        first_call=calls[:1],
        kernel_keys=Counter(key for event in kernels for key in event["args"]),
        last_kernel=kernels[-1:],
        graph_names=graph_names,
        launches=len(calls),
        of_a_replay=len(replays[0]) if replays else None,
    )
    assert len(calls) == len(replays[0])


@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_replay_has_the_kernels_of_the_program_as_it_is(runs: Runs, streams: str, watcher: str) -> None:
    """Their order is a fact: on several streams it is not known."""
    replay = replays_of(rows_of(runs, streams, watcher))[0]
    eager = eager_rows(runs, streams, watcher)
    ours, theirs = ([(row.kind, row.name) for row in rows] for rows in (replay, eager))
    by_stream = defaultdict(list)
    for row in replay:
        by_stream[row.stream].append(row.name)
    fact(
        "order of a replay",
        streams=streams,
        watcher=watcher,
        is_order_of_launches=ours == theirs,
        counts=[len(ours), len(theirs)],
        on_streams={str(stream): len(names) for stream, names in by_stream.items()},
        moved=differences(ours, theirs, most=3) if ours != theirs else None,
    )
    kernels = [Counter(name for kind, name in rows if kind == "kernel") for rows in (ours, theirs)]
    assert len(theirs) > 5
    assert kernels[0] == kernels[1], (kernels[0] - kernels[1], kernels[1] - kernels[0])


@pytest.mark.parametrize("streams", STREAMS)
def test_a_recording_has_the_replays_that_torch_has(runs: Runs, streams: str) -> None:
    ours, theirs = (
        [sorted((row.kind, row.name) for row in one) for one in replays_of(rows_of(runs, streams, watcher))]
        for watcher in ("record", "torch")
    )
    assert ours
    assert ours == theirs, differences(ours, theirs)


@pytest.mark.parametrize("streams", STREAMS)
def test_what_a_recording_says_of_a_capture(runs: Runs, streams: str) -> None:
    """Each captured launch lies in an op of the recording, as the join needs."""
    found = opspan.load(runs("graphs", streams, "record").folder / "recorded").analysed
    ranges, calls = found.complete.ranges, found.complete.calls
    capture = ranges.filter(name="capture").row(0, named=True)
    at_once = found.complete.work["call"].drop_nulls().unique().to_list()
    inside = calls.with_row_index("row").filter(calls["start_ns"].is_between(capture["start_ns"], capture["end_ns"]))
    names = ranges["name"].to_list()
    launched = [
        (row["name"], None if row["range"] is None else names[row["range"]])
        for row in inside.sort("start_ns").to_dicts()
        if is_launch(row["name"]) and row["row"] not in at_once
    ]
    columns = ("graph_node_id", "graph_id", "graph_exec_id")
    fact(
        "recorded capture",
        streams=streams,
        launches=launched,
        node_ids={name: calls[name].count() + found.complete.work[name].count() for name in columns},
        coverage=str(found.coverage),
        issues=found.tables.issues.to_dicts(),
    )
    assert len(launched) == len(captured_calls(runs, streams))
    assert not [one for one in launched if one[1] in (None, "capture")], launched


@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("streams", STREAMS)
def test_replays_give_the_same_watched_or_not(runs: Runs, streams: str, watcher: str) -> None:
    plain, watched = (runs("graphs", streams, each).ended.told for each in ("plain", watcher))
    assert watched["digests"] == plain["digests"]
