"""Captures in pieces, captures that change while they are read, and parts of them: a stretch of time, or some steps."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opspan
from builders.capture import ASYNC, ITT, MARK, NOTHING, STEP, Capture
from opspan.errors import NotReadable, TooLarge, UsageError
from opspan.events import event_frames
from opspan.formats.pieces import Columns
from opspan.readers.capture import chunks
from readers.loading import codes
from readers.test_capture_damage import rich_capture
from tiers import before_release

MS = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("units", before_release([3, 1, 50], kept=1))
def test_a_capture_is_the_same_in_pieces_of_any_size(tmp_path: Path, monkeypatch: Any, units: int) -> None:
    path = rich_capture().write(tmp_path / "100-1.opspan")
    whole = opspan.load(path)

    monkeypatch.setattr(chunks, "PIECE_BYTES", 64 * units)
    in_pieces = opspan.load(path)

    for name, frame in whole.frames.items():
        assert_frame_equal(in_pieces.frames[name], frame)


@pytest.mark.parametrize("rows", [1, 7])
def test_averages_are_the_same_in_parts_of_any_size(tmp_path: Path, monkeypatch: Any, rows: int) -> None:
    trace = opspan.load(rich_capture().write(tmp_path / "100-1.opspan"))
    whole = trace.events().key_averages(group_by_input_shapes=True).table()

    monkeypatch.setattr(event_frames, "PART", rows)

    assert trace.events().key_averages(group_by_input_shapes=True).table() == whole


def test_columns_in_pieces_are_those_in_one_piece() -> None:
    """Values are the same in all pieces, in some, or in none; null at first, later, or always."""
    pieces = [
        {"same": [7, 7], "later": [None, None], "sometimes": [1, 1], "never": [None, None], "zero": [0.0, 0.0]},
        {"same": [7, 7], "later": [None, 2], "sometimes": [2, 2], "never": [None, None], "zero": [-0.0, -0.0]},
        {"same": [7, 7], "later": [3, 3], "sometimes": [1, 2], "never": [None, None], "zero": [0.0, 0.0]},
    ] * 5
    schema = {"same": pl.UInt64, "later": pl.Int64, "sometimes": pl.Int64, "never": pl.String, "zero": pl.Float64}
    frames = [pl.DataFrame(piece, schema=schema) for piece in pieces]
    columns = Columns()
    for frame in frames:
        columns.add(frame)

    found = columns.frame(pl.DataFrame())

    assert_frame_equal(found, pl.concat(frames))
    assert {str(value) for value in found["zero"]} == {"0.0", "-0.0"}


def test_a_file_that_shrinks_while_it_is_read_gives_what_is_left(tmp_path: Path, monkeypatch: Any) -> None:
    made = Capture(pid=100)
    thread = made.thread(100)
    for i in range(2000):
        thread.torch("aten::mm", 10 * i, 10 * i + 5)
    path = made.write(tmp_path / "100-1.opspan")
    found = chunks._units

    def cut_first(*arguments: Any) -> Any:
        os.truncate(path, 1 << 15)
        return found(*arguments)

    monkeypatch.setattr(chunks, "_units", cut_first)
    trace = opspan.load(path)

    assert 500 < trace.ranges.height < 1000
    (message,) = trace.issues.filter(pl.col("code") == "truncated_file")["message"]
    assert "was cut while it was read" in message


def test_a_disk_that_fails_while_reading_is_one_line(tmp_path: Path, monkeypatch: Any) -> None:
    path = rich_capture().write(tmp_path / "100-1.opspan")
    read = os.preadv
    calls = []

    def fails_later(*arguments: Any) -> int:
        calls.append(arguments)
        if len(calls) > 4:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(*arguments)

    monkeypatch.setattr(os, "preadv", fails_later)

    with pytest.raises(NotReadable, match=r"cannot read .*Input/output error"):
        opspan.load(path)


# --- parts


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Opened at 1 ms. Step n from 10(n + 1) to 10(n + 1) + 8 ms, with an op of 2 ms at its begin; forwards and back."""
    made = Capture(pid=100, open_ns=(1 * MS, 1_700_000_000_000_000_000))
    main, other = made.thread(100), made.thread(101)
    for n in range(6):
        at = 10 * (n + 1) * MS
        main.torch(f"ProfilerStep#{n}", at, at + 8 * MS, category=STEP)
        main.torch("aten::mm", at, at + 2 * MS, seq=n, op_id=n + 1)
        task = other.range("task", at + MS, at + 3 * MS, source=ITT)
        other.attribute(task, "n", n)
        other.range("far", at + 4 * MS, kind=ASYNC, identity=n)
        main.end(at + 6 * MS, n)
        main.range("mark", at + 5 * MS, kind=MARK)
        other.counter(at, "depth", n)
    return made.write(tmp_path / "100-1.opspan")


def begins_ms(trace: opspan.Trace, name: str) -> list[int]:
    return (trace.ranges.filter(pl.col("name") == name)["start_ns"] // MS).to_list()


def test_between_keeps_what_overlaps_with_its_true_times(steps: Path) -> None:
    trace = opspan.load(steps, between=(31 * MS, 43 * MS))  # 32 to 44 ms on the capture's clock

    assert begins_ms(trace, "ProfilerStep#2") == [30]
    assert begins_ms(trace, "ProfilerStep#3") == [40]
    assert begins_ms(trace, "aten::mm") == [40]  # the one before ended at 32
    assert begins_ms(trace, "task") == [31, 41]
    assert begins_ms(trace, "far") == [34]  # its end is in a unit of its own, and so is that of the one before
    assert begins_ms(trace, "mark") == [35]
    assert trace.counters["value"].to_list() == [3]
    assert trace.ranges.filter(pl.col("name") == "task")["payload_json"].to_list() == ['{"n": 2}', '{"n": 3}']
    assert codes(trace) == {"outside_window": 30 - trace.ranges.height}
    assert trace.metadata.options["window"] == "between 0.031 s and 0.043 s"


def test_a_part_read_is_the_part_cut_out_of_the_whole(steps: Path, tmp_path: Path) -> None:
    opspan.load(steps).save(tmp_path / "saved.trace")

    part, cut = opspan.load(steps, step=(1, 2)), opspan.load(tmp_path / "saved.trace", step=(1, 2))

    names = ["name", "tid", "start_ns", "end_ns", "payload_json", "is_mark"]
    assert part.ranges.height == 10
    assert_frame_equal(part.ranges.select(names), cut.ranges.select(names))
    assert_frame_equal(part.counters, cut.counters)
    assert part.metadata.options["window"] == cut.metadata.options["window"] == "steps 1 to 2"


def test_what_is_said_of_a_task_by_its_id_is_in_a_part_too(tmp_path: Path) -> None:
    made = Capture(pid=100, open_ns=(0, 1_700_000_000_000_000_000))
    main, other = made.thread(100), made.thread(101)
    main.ids(main.range("task", 10, 20, source=ITT), (1, 0, 0))
    other.attribute(other.ids(NOTHING, (1, 0, 0)), "loss", 5, by_id=True)
    path = made.write(tmp_path / "100-1.opspan")

    for between in (None, (5, 15)):
        assert opspan.load(path, between=between).ranges["payload_json"].to_list() == ['{"loss": 5}']


def test_a_part_of_a_folder_begins_where_its_readable_files_do(steps: Path) -> None:
    (steps.parent / "1-1.opspan").write_bytes(b"no capture, and the first of the folder")

    for part in ({"between": (31 * MS, 43 * MS)}, {"step": 3}):
        assert begins_ms(opspan.load(steps.parent, **part), "aten::mm") == [40]


def test_steps_that_are_not_there_are_told_with_those_that_are(steps: Path) -> None:
    with pytest.raises(UsageError, match=r"no step 9: the trace has steps 0 to 5"):
        opspan.load(steps, step=9)


def test_times_since_the_begin_of_another_source(tmp_path: Path) -> None:
    made = Capture(pid=100)
    made.thread(100).range("a", 1_000, 2_000)
    made.threads[0].range("b", 5_000, 6_000)
    opspan.load(made.write(tmp_path / "100-1.opspan")).save(tmp_path / "saved.trace")

    trace = opspan.load(tmp_path / "saved.trace", between=(0, 1_000))

    assert trace.ranges["name"].to_list() == ["a"]
    assert codes(trace) == {"outside_window": 1}


@pytest.mark.parametrize("between", [(5, 5), (7, 3)])
def test_an_empty_stretch_is_bad_use(steps: Path, between: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="expected START < END"):
        opspan.load(steps, between=between)


# --- memory


def test_a_file_that_needs_more_memory_than_there_is_is_refused_with_the_way_out(steps: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSPAN_MEMORY", "4K")

    with pytest.raises(TooLarge, match=r"needs about .* are available: read a part .*--between.*--step.*OPSPAN_MEMORY"):
        opspan.load(steps)


def test_a_part_that_fits_is_read_of_a_file_that_does_not(steps: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSPAN_MEMORY", "1K")

    assert opspan.load(steps, step=3).ranges.height == 5
    with pytest.raises(TooLarge, match="does not fit into"):
        opspan.load(steps, step=(0, 5))


def test_no_limit_is_no_question(steps: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSPAN_MEMORY", "0")
    monkeypatch.setattr("opspan.formats.budget._of_machine", lambda: 1)

    assert opspan.load(steps).ranges.height == 30


def test_a_limit_that_is_no_size_is_bad_use(steps: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSPAN_MEMORY", "much")

    with pytest.raises(UsageError, match="OPSPAN_MEMORY='much' is not a size"):
        opspan.load(steps)


# --- the command line


def opspan_says(*arguments: str, **environment: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "opspan", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def test_table_of_a_part(steps: Path) -> None:
    code, out, _ = opspan_says("table", str(steps), "--step", "2-3", "--format", "json")

    counts = {row["name"]: row["count"] for row in json.loads(out)["rows"]}
    assert code == 0
    assert counts == {"ProfilerStep*": 2, "aten::mm": 2, "task": 2, "far": 2}


def test_export_of_a_part(steps: Path, tmp_path: Path) -> None:
    code, _, error = opspan_says("export", str(steps), str(tmp_path / "out.parquet"), "--between", "31ms", "0.043s")

    assert code == 0, error
    assert begins_ms(opspan.load(tmp_path / "out.parquet"), "task") == [31, 41]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--between", "1 h", "2s"], {}, "'1 h' is not a time"),
        (["--step", "first"], {}, "no range is called 'first'"),
        (["--step", "1", "--between", "0s", "1s"], {}, "both a time span"),
        ([], {"OPSPAN_MEMORY": "1K"}, "read a part of it (--between START END or --step N"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_2(
    steps: Path, arguments: list[str], environment: dict[str, str], message: str
) -> None:
    code, out, error = opspan_says("table", str(steps), *arguments, **environment)

    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error
