"""Files of one process on the command line: one rank of several cycles, of which --cycle reads one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from builders.cycles import two_cycles, two_ranks
from opspan.cli import VERBS, main

READ_ALL = ("idle", "launches", "waits", "steps", "path", "comm", "memory", "flops", "summary", "table", "findings")


def opspan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    done = opspan(*arguments, "--format", "json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    two_cycles(folder)
    return folder


def test_a_summary_counts_ranks_and_cycles(folder: Path, tmp_path: Path) -> None:
    two_ranks(tmp_path)

    for files in ([folder], sorted(folder.iterdir())):
        assert "1 rank · 2 cycles · 1 process · 1 device" in opspan("summary", *files).stdout
        assert "cycle" not in opspan("summary", "--cycle", "1", *files).stdout
    assert "2 ranks · 2 cycles · 2 processes" in opspan("summary", tmp_path).stdout


def test_a_table_has_each_op_once(folder: Path) -> None:
    for files in ([folder], sorted(folder.iterdir())):
        names = [row["name"] for row in rows("table", *files)]
        assert len(names) == len(set(names))
        assert "Node ID" not in opspan("table", *files).stdout


@pytest.mark.parametrize("verb", READ_ALL)
def test_a_cycle_is_its_file(verb: str, folder: Path) -> None:
    first, second = sorted(folder.iterdir())

    def answer(*arguments: str | Path) -> list[dict[str, Any]]:
        """Without what is to be typed next, which names the files."""
        return [{name: value for name, value in row.items() if name != "command"} for row in rows(verb, *arguments)]

    expected = answer(second)
    assert answer(folder, "--cycle", "2") == expected
    assert answer(second, first, "--cycle", "2") == expected


def test_every_verb_that_reads_a_part_reads_a_cycle() -> None:
    options = {verb: opspan(verb, "--help").stdout for verb in VERBS}

    assert {verb for verb, text in options.items() if "--between" in text} == {
        verb for verb, text in options.items() if "--cycle" in text
    }


def test_an_export_and_a_report_of_a_cycle(folder: Path, tmp_path: Path) -> None:
    for verb, out in (("export", "one.csv"), ("report", "one.html")):
        done = opspan(verb, folder, *(["-o"] if verb == "report" else []), tmp_path / out, "--cycle", "2")
        assert done.exit_code == 0, done.output
    assert "ProfilerStep#11" in (text := (tmp_path / "one.csv").read_text())
    assert "ProfilerStep#7" not in text


def test_a_cycle_that_is_not_there_is_said(folder: Path) -> None:
    done = opspan("steps", folder, "--cycle", "3")

    assert done.exit_code == 2
    assert "there is no cycle 3: the files are of cycles 1, 2" in done.output


def test_a_run_of_cycles_is_no_slower_than_itself(folder: Path) -> None:
    done = opspan("diff", folder, folder, "--fail-over", "0%")

    assert done.exit_code == 0, done.output
