"""Any exception of a reader becomes one ReadError of `load`; a folder loses one file, not all."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.exceptions import ComputeError, PanicException

import hostile
import opspan
from emit.running import READING, forked
from emit.running import opspan as command
from opspan.errors import NotReadable, ReadError, TooLarge, UsageError
from opspan.readers import capture
from opspan.readers.capture import reading

RAISED = [
    ValueError("two\nlines"),
    ComputeError("polars'"),
    PanicException("panicked"),
    RecursionError("too deep"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    OverflowError(),
    KeyError("name"),
    AssertionError(),
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
@pytest.mark.parametrize("where", ["read", "sniff"])
def test_whatever_is_raised_is_a_read_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, where: str
) -> None:
    def fail(*_: object) -> None:
        raise raised

    path = hostile.captures(tmp_path) / "100-1.opspan"
    monkeypatch.setattr(capture, where, fail)
    with pytest.raises(ReadError, match=type(raised).__name__) as caught:
        opspan.load(path)
    assert caught.value.__cause__ is raised
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (MemoryError(), TooLarge),
        (PermissionError(13, "Permission denied", "/x"), NotReadable),
        (UsageError("said already"), UsageError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(3), SystemExit),
    ],
    ids=repr,
)
def test_what_has_a_kind_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, kind: type[BaseException]
) -> None:
    def fail(_: Path) -> None:
        raise raised

    monkeypatch.setattr(capture, "read", fail)
    with pytest.raises(kind) as caught:
        opspan.load(hostile.captures(tmp_path) / "100-1.opspan")
    assert caught.type is kind


def test_a_file_that_cannot_be_read_is_lost_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_one = reading._read_one

    def fail(segments: list[Path], *others: object) -> object:
        if segments[0].name == "100-1.opspan":
            raise OverflowError("nobody thought of it")
        return read_one(segments, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "_read_one", fail)
    trace = opspan.load(hostile.captures(tmp_path))
    assert trace.ranges["pid"].to_list() == [101]
    (said,) = trace.issues["message"].to_list()
    assert "files in the folder could not be read and were left out (1)" in said
    assert "OverflowError: nobody thought of it" in said


def test_a_capture_that_says_it_has_lost_2_63_events_loses_nothing_else(tmp_path: Path) -> None:
    trace = opspan.load(hostile.FAMILIES["a capture of several that says it has lost 2^63 events"].make(tmp_path))
    assert sorted(trace.ranges["pid"]) == [100, 101]


def test_a_fault_can_be_found(tmp_path: Path) -> None:
    path = hostile.captures(tmp_path) / "100-1.opspan"
    program = """
import sys
from opspan.readers import capture
capture.read = lambda path: {}["where it failed"]
from opspan.cli import main
main()
"""
    for debug in ("", "1"):
        done = forked(program, "table", path, env={"OPSPAN_DEBUG": debug}, imported=READING)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("error: ")
        assert ("Traceback" in done.stderr) == bool(debug)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in hostile.FAMILIES if "no UTF-8" in name])
def test_names_that_are_no_utf_8_reach_the_terminal(tmp_path: Path, name: str) -> None:
    if "columns" in name:
        pytest.skip("not of names")
    path = hostile.FAMILIES[name].make(tmp_path)
    done = command("table", path)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
