"""Traces in a log folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builders import kineto
from opspan.tensorboard.runs import TOGETHER, runs_in
from views.sources import capture, nsys


def profile(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return kineto.write(path)


def names(folder: Path) -> dict[str, list[list[str]]]:
    """The workers of each span of each run."""
    return {run.name: [[worker.name for worker in span.workers] for span in run.spans] for run in runs_in(folder)}


def test_the_files_of_a_handler_are_workers_and_spans(tmp_path: Path) -> None:
    for name in ("host_1.100", "host_2.101", "host_1.300", "host_2.99"):
        profile(tmp_path / "resnet" / f"{name}.pt.trace.json")

    (run,) = runs_in(tmp_path)

    assert names(tmp_path) == {"resnet": [[TOGETHER, "host_1", "host_2"]] * 2}
    first, second = ([path.name.split(".")[1] for path in span.workers[0].files] for span in run.spans)
    assert (first, second) == (["100", "99"], ["300", "101"])


def test_whatever_opspan_reads_is_there_and_nothing_else_is(tmp_path: Path) -> None:
    nsys(tmp_path / "report.sqlite")
    profile(tmp_path / "deep" / "b.json")
    (tmp_path / "deep" / "er").mkdir()
    capture(tmp_path / "deep" / "er" / "a.opspan")
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"\0" * 64)
    (tmp_path / "notes.txt").write_text("not a trace")
    os.mkfifo(tmp_path / "pipe")

    assert names(tmp_path) == {".": [["report.sqlite"]], "deep": [["b.json"]], "deep/er": [["a.opspan"]]}


def test_files_of_other_tools_are_shown_one_by_one_at_first(tmp_path: Path) -> None:
    nsys(tmp_path / "before.sqlite")
    nsys(tmp_path / "later.sqlite")

    assert names(tmp_path) == {".": [["before.sqlite", "later.sqlite", TOGETHER]]}


def test_files_whose_names_say_ranks_are_shown_together_at_first(tmp_path: Path) -> None:
    nsys(tmp_path / "rank0.sqlite")
    nsys(tmp_path / "rank1.sqlite")

    assert names(tmp_path) == {".": [[TOGETHER, "rank0.sqlite", "rank1.sqlite"]]}


def test_a_damaged_trace_is_there_to_say_so(tmp_path: Path) -> None:
    (tmp_path / "worker0.1.pt.trace.json.gz").write_bytes(b"\x1f\x8bnothing")

    assert names(tmp_path) == {".": [["worker0"]]}


def test_an_empty_folder_has_no_runs_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert runs_in(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        runs_in(tmp_path / "missing")


def test_names_show_as_text(tmp_path: Path) -> None:
    profile(tmp_path / "a\x1b[31m" / "w\u202e.1.pt.trace.json")

    (run,) = runs_in(tmp_path)

    assert (run.name, run.spans[0].workers[0].name) == ("a\\x1b[31m", "w\\u202e")
