"""opspan findings: the same findings as text, JSON and CSV, for any width, whatever names say."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.views.findings import SCHEMA

FOREIGN = "\x1b[2J{0} {idle_ns} </script><script>\u202e\n" + 10_000 * "x"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of which half is waiting for data, and a kernel that takes all other time, of foreign names."""
    events = []
    for step in range(2):
        begin = 1000.0 * step
        events += [
            kineto.span("user_annotation", f"ProfilerStep#{step}", kineto.MAIN, begin, 1000),
            kineto.span("user_annotation", "enumerate(DataLoader)#x.__next__", kineto.MAIN, begin + 500, 500),
            kineto.op(FOREIGN, kineto.MAIN, begin, 400),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begin + 1, 4, 2 * step + 1),
            kineto.kernel(FOREIGN, begin, 400, 2 * step + 1),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begin + 6, 4, 2 * step + 2),
            kineto.kernel("other", begin + 400, 100, 2 * step + 2),
        ]
    return kineto.write(tmp_path_factory.mktemp("findings") / "run.json", kineto.document(events))


def test_the_same_findings_in_each_form(slow: Path) -> None:
    found = rows("findings", slow)
    # 500 us of each of two steps. With more blocks than 16 for 132 multiprocessors the host would be done no sooner.
    assert [row["id"] for row in found[:2]] == ["data-loading", "idle"]
    loading = found[0]
    assert (loading["at_stake_ns"], loading["share"], loading["severity"]) == (1_000_000, 0.5, "high")
    assert loading["command"] == f"opspan steps {slow}"
    of_python = package.load(slow).findings().to_dicts()
    assert [row | {"command": ""} for row in of_python] == [row | {"command": ""} for row in found]

    done = opspan("findings", slow, "--format", "csv")
    read = pl.read_csv(io.StringIO(done.stdout), infer_schema_length=None)
    assert read.columns == list(SCHEMA)
    assert read["id"].to_list() == [row["id"] for row in found]
    assert read["at_stake_ns"].to_list() == [row["at_stake_ns"] for row in found]
    assert [json.loads(cell) for cell in read["figures"]] == [row["figures"] for row in found]


def test_a_limit_is_how_many_there_are(slow: Path) -> None:
    found = rows("findings", slow)
    assert rows("findings", slow, "--limit", "1") == found[:1]
    done = opspan("findings", slow, "--limit", "1")
    assert f"[{found[0]['id']}]" in done.stdout
    assert f"[{found[1]['id']}]" not in done.stdout
    assert f"{len(found) - 1} more rows: --limit -1 shows all" in done.stdout


def test_foreign_names_are_shown_safely(slow: Path) -> None:
    done = opspan("findings", slow)
    assert done.returncode == 0
    assert "dominating-kernel" in done.stdout
    assert r"\x1b[2J{0} {idle_ns}" in done.stdout
    for odd in ("\x1b", "\u202e", 100 * "x"):
        assert odd not in done.stdout
    # In data names are what they are, and a sentence is for people.
    row = next(row for row in rows("findings", slow) if row["id"] == "dominating-kernel")
    assert row["ops"] == [FOREIGN]
    assert row["sentence"].isprintable()
    assert len(row["sentence"]) < 300


@pytest.mark.parametrize("width", [40, 80, 120])
def test_text_is_as_wide_as_it_may_be(width: int, slow: Path) -> None:
    done = opspan("findings", slow, env={"COLUMNS": str(width)})
    assert done.returncode == 0, done.stderr
    for line in done.stdout.split("\nCoverage:")[0].splitlines():
        # Commands, paths and words stay in one piece.
        if not line.strip().startswith(("Next", "Read")) and len(line.split()) > 2:
            assert len(line) <= max(width, 4 + max(map(len, line.split()))), line


def test_the_summary_names_them(slow: Path) -> None:
    found = [row for row in rows("findings", slow) if row["at_stake_ns"] is not None]
    (row,) = rows("summary", slow)
    assert (row["findings"], row["at_stake_ns"]) == (len(found), found[0]["at_stake_ns"])
    line = next(line for line in opspan("summary", slow).stdout.splitlines() if line.startswith("Findings"))
    assert f"{len(found)}: {found[0]['id']} {found[0]['share']:.1%}" in line
    assert len(line) <= 80


def test_where_nothing_is_wrong_it_says_so(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([]))
    done = opspan("findings", path)
    assert (done.returncode, rows("findings", path)) == (0, [])
    assert "Nothing was found" in done.stdout
