"""Verbs that are given a folder, a pattern or many files: they say what they say of the files, named one by one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from builders import nsys
from builders.training import run
from builders.training_files import kineto_files
from builders.training_plan import Plan
from opspan import load
from opspan.analysis.compare import compared
from opspan.cli import main
from opspan.cli.loading import Progress
from opspan.views.diff import figures_of

VERBS = ("idle", "launches", "waits", "steps", "path", "comm", "memory", "flops", "summary", "table")


def opspan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    kineto_files(folder, run(Plan(ranks=2, steps=4, straggler=(1, 1.5))))
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_is_its_files(verb: str, folder: Path) -> None:
    named = opspan(verb, *sorted(folder.iterdir()), "--format", "json")
    assert named.exit_code == 0, named.output

    of_folder = opspan(verb, folder, "--format", "json")

    ours, theirs = json.loads(of_folder.stdout), json.loads(named.stdout)
    if verb == "table":  # rows that are alike in what they are sorted by may stand in another order
        for document in (ours, theirs):
            document["rows"].sort(key=lambda row: (row["name"], row["rank"]))
    if verb == "summary":  # the commands that it suggests have the paths that were given
        ours, theirs = ours["rows"], theirs["rows"]
        for row in (*ours, *theirs):
            del row["findings"], row["at_stake_ns"]
    assert ours == theirs
    if verb not in ("summary", "table"):
        assert opspan(verb, f"{folder}/*.json").stdout == opspan(verb, *sorted(folder.iterdir())).stdout


def test_findings_of_a_folder_say_where_to_look_next(folder: Path) -> None:
    found = opspan("findings", folder, "--processes", "1")

    assert found.exit_code == 0
    assert "Ranks are late, and the others wait [straggler]" in found.stdout
    assert f"opspan comm {folder} --by rank" in found.stdout


@pytest.mark.parametrize("verb", ["export", "report"])
def test_what_needs_all_at_once_takes_a_folder_too(verb: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sqlite"
    done = opspan("export", folder, out) if verb == "export" else opspan("diff", folder, folder, "--format", "json")

    assert done.exit_code == 0, done.output
    if verb == "export":
        assert out.is_file()
    else:
        assert {row["change_ns"] for row in json.loads(done.stdout)["rows"]} == {0}


@pytest.mark.parametrize("by", ["op", "kernel", "place"])
@pytest.mark.parametrize("part", [[], ["--step", "1", "--with-step", "1:2"]])
def test_a_diff_of_folders_is_that_of_their_files_read_at_once(
    by: str, part: list[str], folder: Path, tmp_path: Path
) -> None:
    kineto_files(tmp_path, run(Plan(ranks=2, steps=4, seed=1, slower={"aten::mm": 2.0})))
    sides = [load(*sorted(one.iterdir())).analysed for one in (folder, tmp_path)]
    steps: list[Any] = [(1, 1), (1, 2)] if part else [None, None]
    expected = compared(*(figures_of(side, by, step) for side, step in zip(sides, steps, strict=True)))

    done = opspan("diff", folder, tmp_path, "--by", by, *part, "--processes", "1", "--format", "json")

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == json.loads(expected.write_json())
    assert expected["change_ns"].abs().max() > 0


@pytest.mark.parametrize("option", ["--processes", "--dask"])
@pytest.mark.parametrize("verb", ["export", "report", "push", "diff"])
def test_what_needs_all_at_once_is_read_here(verb: str, option: str, folder: Path, tmp_path: Path) -> None:
    more = {
        "export": [tmp_path / "out.sqlite"],
        "report": [],
        "push": ["--url", "http://127.0.0.1:1", "--app", "train"],
        "diff": ["--save-baseline", tmp_path / "baseline.json"],
    }
    refused = opspan(verb, folder, *more[verb], option, "2" if option == "--processes" else "tcp://127.0.0.1:1")

    assert refused.exit_code == 2
    assert "needs all of a trace at once" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_bad_file_is_said_below_the_answer(tmp_path: Path) -> None:
    first = nsys.run(tmp_path / "rank0.sqlite", "2026")
    shutil.copy(first, tmp_path / "rank1.sqlite")
    (tmp_path / "rank2.sqlite").write_bytes(b"")
    (tmp_path / "train.log").write_text("text")

    found = opspan("waits", tmp_path)

    assert found.exit_code == 0
    said = " ".join(found.stdout.split())
    assert "Issue (warning): files in the folder could not be read and were left out" in said
    assert "rank2.sqlite is an empty file" in said
    assert "files in the folder are no traces and were left out (1)" in said


def test_where_no_file_can_be_read_the_exit_code_is_2(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"rank{number}.sqlite").write_bytes(bytes(100))

    found = opspan("idle", tmp_path)

    assert found.exit_code == 2
    assert found.stdout == ""
    assert "none of the 3 files could be read; the first: " in found.stderr
    assert opspan("idle", tmp_path / "*.json").exit_code == 2


def test_the_issues_of_many_files_are_put_together(tmp_path: Path) -> None:
    first = nsys.run(tmp_path / "rank00.sqlite", "2026")
    for number in range(1, 4):
        shutil.copy(first, tmp_path / f"rank{number:02}.sqlite")
    for number in range(4, 70):
        (tmp_path / f"rank{number:02}.sqlite").write_bytes(bytes(100 + number))

    found = opspan("waits", tmp_path, "--processes", "1")

    lines = [line for line in found.stdout.splitlines() if line.startswith("Issue")]
    said = " ".join(found.stdout.split())
    assert len(lines) == 2
    assert "rank04.sqlite is a file that begins with zeros" in said
    assert "65 more like it" in said


def test_the_bar_knows_files_and_bytes() -> None:
    progress = Progress(3)
    progress.step("reading 2 files")

    progress.done(1, 2_000_000)
    progress.done(1, 3_000_000)

    assert progress.read() == "5 MB"


def test_a_report_of_metrics_is_of_one_trace(folder: Path, tmp_path: Path) -> None:
    found = opspan("table", folder, "--metrics", tmp_path / "report.csv")

    assert found.exit_code == 2
    assert "--metrics is a report of one run" in found.stderr
