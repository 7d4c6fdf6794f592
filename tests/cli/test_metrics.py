"""opspan table --metrics, and a report of VTune where a trace is expected."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import opspan
from builders import vtune
from emit.running import opspan as command
from views.sources import nsys

REPORT = """\
Elapsed Time: 5s
    CPU Time: 4s
 | Slow.

Top Tasks
Task Type  Task Time
---------  ---------
aten::mm        1.5s
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report"


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    return nsys(tmp_path / "run.sqlite", scale=1000)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return vtune.one_task(tmp_path, "aten::mm")


@pytest.mark.parametrize("text", [REPORT, "Task Type,CPU Time\naten::mm,1.5\n"])
@pytest.mark.parametrize("verb", [["summary"], ["path"], ["export"]])
def test_a_report_that_is_taken_for_a_trace_is_told_its_option(file: Path, text: str, verb: list[str]) -> None:
    file.write_text(text, encoding="utf-8")
    out = [file.with_name("out.json")] if verb == ["export"] else []
    done = command(*verb, file, *out)
    assert done.returncode == 2
    assert "is a report that `vtune -report` printed" in done.stderr
    assert f"`opspan table {file}` prints it" in done.stderr
    assert f"`opspan table RESULT --metrics {file}`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_report_is_printed_with_the_table_that_it_has(file: Path, form: str) -> None:
    file.write_text("Task Type;CPU Time;Share(%)\naten::mm;1.5;20.0\naten::add;0.5;9\n", encoding="utf-8")

    done = command("table", file, "--format", form)

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"] if form == "json" else list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["Task Type"], float(row["CPU Time"]), float(row["Share(%)"])) for row in rows] == [
        ("aten::mm", 1.5, 20.0),
        ("aten::add", 0.5, 9.0),
    ]


def test_a_report_in_words_is_printed_whole(file: Path) -> None:
    file.write_text(REPORT, encoding="utf-8")

    done = command("table", file)

    assert done.returncode == 0, done.stderr
    assert re.search(r"CPU Time +4\.0 +4s", done.stdout)
    assert re.search(r"aten::mm +Task Time +1\.5", done.stdout)
    assert "'Slow.'" in done.stdout


def test_what_chooses_from_a_trace_is_refused_of_a_report(file: Path) -> None:
    file.write_text(REPORT, encoding="utf-8")

    done = command("table", file, "--by", "shape", "--op", "aten::mm")

    assert (done.returncode, done.stdout) == (2, "")
    assert "leave out --by and --op" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_real_report_is_printed(traces_dir: Path) -> None:
    folder = traces_dir / "vtune"
    for path in [*folder.glob("*.csv"), *folder.glob("*.txt"), *(folder / "reports").iterdir()]:
        done = command("table", path, "--format", "csv", "--limit", "-1")

        assert done.returncode == 0, done.stderr
        assert len(list(csv.reader(io.StringIO(done.stdout)))) == opspan.load_vtune_report(path).height + 1


def test_lines_that_are_neither_are_an_issue_of_the_table(file: Path, database: Path) -> None:
    file.write_text(REPORT, encoding="utf-8")
    done = command("table", database, "--metrics", file)
    assert done.returncode == 0, done.stderr
    assert re.search(r"aten::mm .* 1\.5 ", done.stdout)
    assert "lines of the report are neither figures nor rows of a table, and were left out (1): 'Slow.'" in done.stdout


def test_a_report_that_says_nothing_of_ops_is_said(file: Path, database: Path) -> None:
    file.write_text("Elapsed Time: 5s\n    CPU Time: 4s\n    Paused Time: 0s\n", encoding="utf-8")
    done = command("table", database, "--metrics", file)
    assert "names in the report are not in the trace (3)" in done.stdout


def test_metrics_of_a_report_are_further_columns(exported: Path, tmp_path: Path) -> None:
    report = tmp_path / "tasks.csv"
    report.write_text("Task Type;CPU Time;Memory Bound(%)\naten::linear;1.5;20.0\n[Outside any task];9;9\n")

    done = command("table", exported, "--metrics", report, "--format", "csv")

    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.returncode == 0, done.stderr
    assert {row["name"]: row["CPU Time"] for row in rows}["aten::linear"] == "1.5"
    assert {row["CPU Time"] for row in rows if row["name"] != "aten::linear"} == {""}


def test_metrics_of_names_are_in_no_other_table(exported: Path, tmp_path: Path) -> None:
    done = command("table", exported, "--metrics", tmp_path / "tasks.csv", "--by", "module")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--by name" in done.stderr


def test_a_folder_of_one_trace_is_that_trace(exported: Path, tmp_path: Path) -> None:
    report = tmp_path / "tasks.csv"
    report.write_text("Task Type;CPU Time;Memory Bound(%)\naten::linear;1.5;20.0\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / exported.name).symlink_to(exported)

    one = command("table", tmp_path / "run", "--metrics", report, "--format", "csv")
    (tmp_path / "run" / f"b{exported.suffix}").symlink_to(exported)
    two = command("table", tmp_path / "run", "--metrics", report)
    side_by_side = command("table", exported, "--metrics", report, "--processes", "2")

    assert (one.returncode, one.stdout) == (
        0, command("table", exported, "--metrics", report, "--format", "csv").stdout
    )  # fmt: skip
    assert (two.returncode, "and got 2 files" in two.stderr) == (2, True)
    assert (side_by_side.returncode, "leave out --processes" in side_by_side.stderr) == (2, True)
