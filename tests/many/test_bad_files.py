"""Files that cannot be read: each is an issue that says why, and all others answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opspan
from builders import nsys
from opspan.errors import ReadError, StrictError
from opspan.many import task
from opspan.many.processes import Processes
from opspan.many.task import ReadOptions, Request, Task, answered
from opspan.questions import Options
from tiers import RELEASE


def folder_of(folder: Path, count: int, *damaged: int) -> Path:
    folder.mkdir()
    first = nsys.run(folder / "rank0000.sqlite", "2026")
    for number in range(1, count):
        shutil.copy(first, folder / f"rank{number:04}.sqlite")
    for number in damaged:
        path = folder / f"rank{number:04}.sqlite"
        content = path.read_bytes()
        path.write_bytes((b"", bytes(200), content[:1000], b"SQLite format 3\0" + bytes(999))[number % 4])
    return folder


@pytest.mark.parametrize("processes", [1, 2])
def test_a_damaged_file_is_an_issue(tmp_path: Path, processes: int) -> None:
    run = folder_of(tmp_path / "run", 10, 4, 5, 6, 7)

    ranks = opspan.load_many(run, processes=processes)

    good = [run / f"rank{number:04}.sqlite" for number in (0, 1, 2, 3, 8, 9)]
    assert_frame_equal(ranks.waits(), opspan.load(*good).waits())
    issues = ranks.issues.filter(code="unreadable_file")
    assert issues["count"].sum() == 4
    for number in (4, 5, 6, 7):
        assert f"rank{number:04}.sqlite" in " ".join(issues["message"])
    assert [rank.paths for rank in ranks.ranks] == [(str(path),) for path in good]


PAGE = 4096
# Replaces the content of a file by damaged content. Some of it is written by other programs.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "zeros": lambda content: bytes(len(content)),
    "cut in a page": lambda content: content[: PAGE * 5 + 1000],
    "cut between pages": lambda content: content[:-PAGE],
    "the first page zeroed": lambda content: bytes(PAGE) + content[PAGE:],
    "the list of tables zeroed": lambda content: content[:100] + bytes(PAGE - 100) + content[PAGE:],
    "noise behind the head": lambda content: content[:100] + Random(0).randbytes(len(content) - 100),
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
    "an error page": lambda _: b"<!DOCTYPE html><html><body>404 not found</body></html>",
    "a FIFO": lambda _: b"",
}
OF_RANGES = 2  # the page of them: what else is in the file can be read


ASKED = tuple((name, Options(by)) for name, by in (("idle", "device"), ("launches", "op"), ("waits", "op")))


@pytest.mark.parametrize(
    ("count", "processes", "asked"), [(24, 1, ASKED), pytest.param(1000, 2, ASKED[:1], marks=RELEASE)]
)
def test_of_many_files_some_are_damaged(tmp_path: Path, count: int, processes: int, asked: tuple[Request, ...]) -> None:
    run = folder_of(tmp_path / "run", count)
    damaged = [run / f"rank{number:04}.sqlite" for number in range(1, count, count // len(DAMAGE))][: len(DAMAGE)]
    for path, (what, damage) in zip(damaged, DAMAGE.items(), strict=True):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path) if what == "a FIFO" else path.write_bytes(damage(content))
    partly = run / f"rank{count - 1:04}.sqlite"
    content = partly.read_bytes()
    partly.write_bytes(content[: PAGE * OF_RANGES] + bytes(PAGE) + content[PAGE * (OF_RANGES + 1) :])
    sound = tmp_path / "sound"
    sound.mkdir()
    for path in sorted({*run.iterdir()} - {*damaged}):
        shutil.copy(path, sound)

    ranks, expected = (opspan.load_many(folder, processes=processes) for folder in (run, sound))

    answers = ranks.ask(*asked)
    for ours, theirs in zip(answers, expected.ask(*asked), strict=True):
        assert ours.keys() == theirs.keys()
        for name, part in ours.items():
            assert_frame_equal(part.rows, theirs[name].rows)
    assert answers[0]["rows"].rows["rank"].n_unique() == count - len(DAMAGE)
    assert len(ranks.ranks) == count - len(DAMAGE)
    issues = ranks.issues
    messages = issues.filter(code="unreadable_file")["message"].to_list()
    assert len(messages) == len(DAMAGE)
    assert sorted(path.name for path in damaged) == sorted(
        path.name for path in damaged for message in messages if str(path) in message
    )
    assert issues.filter(pl.col("message").str.contains("NVTX_EVENTS.*malformed"), rank=count - 1).height == 1


def test_where_no_file_can_be_read_that_is_the_error(tmp_path: Path) -> None:
    run = folder_of(tmp_path / "run", 2, 0, 1)

    with pytest.raises(ReadError, match=r"none of the 2 files could be read; the first: .*rank0000.sqlite is an empty"):
        opspan.load_many(run).idle()
    with pytest.raises(ReadError, match=r"rank0001.sqlite is a file that begins with zeros"):
        opspan.load_many(run / "rank0001.sqlite").idle()


def test_strictly_a_file_is_the_end(tmp_path: Path) -> None:
    run = folder_of(tmp_path / "run", 3, 1)

    with pytest.raises(ReadError, match="rank0001"):
        opspan.load_many(run, strict=True).idle()
    (run / "rank0001.sqlite").unlink()
    nsys.export(run / "rank0001.sqlite", {"NVTX_EVENTS": [{"start": None, "end": 5, "eventType": nsys.PUSH_POP}]})
    with pytest.raises((StrictError, ReadError), match="rank0001"):
        opspan.load_many(run, strict=True).idle()


def test_files_that_are_no_traces_are_counted(tmp_path: Path) -> None:
    run = folder_of(tmp_path / "run", 2)
    for name in ("a.log", "b.txt"):
        (run / name).write_text("text")

    (issue,) = opspan.load_many(run).issues.filter(code="no_traces").to_dicts()

    assert issue["count"] == 2
    assert issue["severity"] == "info"


def deadly(asked: Task) -> Any:
    """Ends its process at the file of this name, as what takes too much memory does."""
    if any("deadly" in path for path in asked.paths):
        os.abort()
    return answered(asked)


class Deadly(Executor):
    """Hands on what it is given, but for the function."""

    def __init__(self, pool: Processes) -> None:
        self.pool, self.tasks = pool, 0

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        assert function is answered
        self.tasks += 1
        return self.pool.submit(deadly, *arguments)


def test_a_file_that_ends_its_process_is_asked_once_more_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(Path(__file__).parents[1]), *__import__("sys").path])
    run = folder_of(tmp_path / "run", 32)
    (run / "rank0005.sqlite").rename(run / "rank0005-deadly.sqlite")

    with Processes(2) as pool:
        executor = Deadly(pool)
        ranks = opspan.load_many(run, executor=executor, processes=2)
        steps = ranks.steps()

    assert steps["rank"].n_unique() == 31
    (issue,) = ranks.issues.filter(code="unreadable_file").to_dicts()
    assert "rank0005-deadly.sqlite could not be read: its process was ended by SIGABRT" in issue["message"]
    assert 8 < executor.tasks <= 8 + 4


def test_an_error_of_a_library_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = folder_of(tmp_path / "run", 2)
    first = str(run / "rank0000.sqlite")
    opened = task.open_files

    def broken(file: str, reading: ReadOptions) -> Any:
        if file == first:
            raise RecursionError("too deep")
        return opened(file, reading)

    monkeypatch.setattr(task, "open_files", broken)
    one, other = answered(Task((first, str(run / "rank0001.sqlite")), ReadOptions(), (("steps", Options()),)))

    assert isinstance(one, task.FileFailure)
    assert "could not be analysed (RecursionError: too deep)" in one.message
    assert isinstance(other, task.FileAnswer)
