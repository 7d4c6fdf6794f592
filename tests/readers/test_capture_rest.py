"""Facts of a capture beside its ranges: threads, processes, problems; and captures that are read together."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from builders.capture import ITT, NOTHING, Capture
from opspan.errors import UsageError
from opspan.readers.capture import read_recording
from readers.loading import load, rows


def test_threads_processes_and_where_it_came_from(tmp_path: Path) -> None:
    made = Capture(pid=100, parent_pid=7, host="box", arguments=("python", "my train.py", ""), forked=True, producer=2)
    made.thread(100, "MainThread")
    made.thread(101, "pt_autograd_0").name_thread(101, "autograd")
    made.threads[0].attribute(NOTHING, "lang", "de")

    trace = load(made, tmp_path)

    assert rows(trace.threads, "rank", "pid", "tid", "name", "payload_json") == [
        (0, 100, 100, "MainThread", '{"lang": "de"}'),
        (0, 100, 101, "autograd", None),
    ]
    assert rows(trace.processes, "pid", "parent_pid", "name", "host", "is_forked", "start_ns", "end_ns") == [
        (100, 7, "python", "box", True, 1000, 9000)
    ]
    assert trace.processes["command_line"][0].startswith("python 'my train.py'")
    assert trace.metadata.source == "capture"
    assert trace.metadata.options["recorded_by"] == "collectors"
    assert trace.origin_utc_ns == 1_700_000_000_000_000_000
    assert trace.metadata.clock == "CLOCK_MONOTONIC"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Capture(state=0, close_ns=(0, 0)), [("not_closed", "info")]),
        (Capture(state=2, lost=5), [("disk_full", "warning"), ("lost_events", "warning")]),
        (Capture(close_ns=(9_000, 1_700_000_005_000_009_000)), [("clock_stepped", "warning")]),
    ],
    ids=["killed", "disk full", "clock set"],
)
def test_how_the_capture_ended_is_said(made: Capture, expected: list, tmp_path: Path) -> None:
    made.thread(100).torch("aten::mm", 1, 2)

    assert rows(load(made, tmp_path).issues, "code", "severity") == expected


def test_a_folder_is_one_run_of_several_processes(tmp_path: Path) -> None:
    for pid in (100, 101):
        made = Capture(pid=pid)
        thread = made.thread(pid)
        first = thread.range("one", 1, 9, source=ITT)
        thread.ids(first, (1, 0, 0))
        thread.ids(thread.range("two", 2, 3, source=ITT), (2, 0, 0), (1, 0, 0))
        made.write(tmp_path / f"{pid}-1.opspan")

    trace = opspan.load(tmp_path)

    assert rows(trace.ranges, "rank", "id", "pid", "parent_id") == [
        (0, 0, 100, None),
        (0, 1, 100, 0),
        (0, 2, 101, None),
        (0, 3, 101, 2),
    ]
    assert trace.processes.height == 2
    assert len(trace.ranks) == 1


def test_a_recording_is_its_file_and_those_of_its_forks_and_nothing_else_of_the_folder(tmp_path: Path) -> None:
    """Whichever names come first; what is no capture may lie beside them."""
    for pid, session in ((100, 5), (101, 5), (102, 5), (103, 6)):
        made = Capture(pid=pid, session=(session, 101), forked=pid != 101)
        made.thread(pid).torch(f"of {pid}", 1, 2)
        made.write(tmp_path / f"{pid}-1.opspan")
    (tmp_path / "104-1.opspan").write_bytes(b"no capture")

    found = read_recording(tmp_path / "101-1.opspan")

    assert sorted(found.ranges["name"]) == ["of 100", "of 101", "of 102"]
    assert "unreadable_file" not in found.issues["code"].to_list()


def test_a_source_that_nobody_knows_is_none_of_those_that_are(tmp_path: Path) -> None:
    made = Capture()
    for source in (ITT, 9):
        made.thread(100 + source).range("x", 1, 2, source=source)

    assert load(made, tmp_path).ranges["source"].to_list() == ["itt", None]


def test_several_paths_are_ranks(tmp_path: Path) -> None:
    paths = []
    for pid in (100, 101):
        made = Capture(pid=pid)
        made.thread(pid).torch("aten::mm", 1, 2)
        paths.append(made.write(tmp_path / f"{pid}-1.opspan"))

    trace = opspan.load(*paths)

    assert rows(trace.ranges, "rank", "pid") == [(0, 100), (1, 101)]
    assert [rank.paths for rank in trace.ranks] == [(str(path),) for path in paths]


def test_an_empty_capture_is_a_trace(tmp_path: Path) -> None:
    trace = load(Capture(), tmp_path)

    assert trace.ranges.is_empty()
    assert trace.issues.is_empty()


def test_the_reader_can_be_named(tmp_path: Path) -> None:
    path = Capture().write(tmp_path / "100-1.opspan")

    assert opspan.load(path, source="capture").metadata.source == "capture"
    with pytest.raises(UsageError, match="no reader is called 'vhs'; expected one of nsys"):
        opspan.load(path, source="vhs")
    with pytest.raises(UsageError):
        opspan.load()
