"""opspan export: the file that the suffix says, whole or not at all, and never over a source."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest

import opspan as package
from emit.running import opspan
from opspan.outputs import OUTPUTS
from views.sources import capture, nsys

SUFFIXES = [suffix for output in OUTPUTS for suffix in output.suffixes]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return nsys(tmp_path / "run.sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_it_writes_what_the_suffix_says_and_says_so(suffix: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out{suffix}"

    done = opspan("export", source, out)

    assert (done.returncode, done.stdout) == (0, f"Wrote {out} (11 ranges, 0 issues)\n")
    assert out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, out.name])


@pytest.mark.slow
def test_each_output_is_what_it_is_said_to_be(source: Path, tmp_path: Path) -> None:
    def exported(suffix: str) -> Path:
        out = tmp_path / f"out{suffix}"
        assert opspan("export", source, out).returncode == 0
        return out

    chrome = json.loads(exported(".json").read_text())
    zipped = json.loads(gzip.decompress(exported(".json.gz").read_bytes()))
    with sqlite3.connect(exported(".sqlite")) as database:
        (ranges,) = database.execute("SELECT count(*) FROM ranges").fetchone()
    with exported(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert chrome == zipped
    assert sum(event["ph"] == "X" for event in chrome["traceEvents"]) == 9 + 6 + 9
    assert ranges == len(rows) == 11
    assert sum(int(row["self_device_ns"]) for row in rows) == 784
    assert "aten::linear;aten::addmm 400\n" in exported(".stacks").read_text()
    assert "ProfilerStep#0;aten::linear;aten::addmm;gemm 168\n" in exported(".device.stacks").read_text()
    assert json.loads(exported(".table.json").read_text())["by"] == "name"


def test_a_folder_of_tables_loads_back_exactly(source: Path, tmp_path: Path) -> None:
    opspan("export", source, tmp_path / "out.parquet")

    before, after = package.load(source), package.load(tmp_path / "out.parquet")

    assert before.ranks == after.ranks
    assert all(frame.equals(after.frames[name]) for name, frame in before.frames.items())
    assert after.events().key_averages().table() == before.events().key_averages().table()


def test_several_files_are_ranks(source: Path, tmp_path: Path) -> None:
    other = capture(tmp_path / "other.opspan")

    done = opspan("export", source, other, tmp_path / "both.db")

    assert done.stdout == f"Wrote {tmp_path / 'both.db'} (20 ranges, 1 issue)\n"
    assert done.stderr.startswith("Issue (warning): events could not be written while capturing (3).")
    with sqlite3.connect(tmp_path / "both.db") as database:
        counted = database.execute("SELECT rank, count(*) FROM ranges GROUP BY rank").fetchall()
    assert counted == [(0, 11), (1, 9)]


def test_what_a_format_has_no_place_for_is_said(source: Path, tmp_path: Path) -> None:
    csv_done = opspan("export", source, tmp_path / "out.csv")
    stacks_done = opspan("export", source, tmp_path / "out.stacks")

    assert "6 rows of calls, 9 rows of work" in csv_done.stderr
    assert "1 async ranges are in no stack" in stacks_done.stderr


class TestPlaces:
    def test_a_source_is_never_replaced(self, source: Path, tmp_path: Path) -> None:
        os.link(source, tmp_path / "linked.db")
        (tmp_path / "symbolic.db").symlink_to(source)
        before = source.read_bytes()

        for out in (source, tmp_path / "linked.db", tmp_path / "symbolic.db"):
            done = opspan("export", source, out, "--force")
            assert (done.returncode, done.stdout) == (2, "")
            assert "which the trace was read from" in done.stderr
            assert done.stderr.count("\n") == 1
        assert source.read_bytes() == before

    def test_nor_a_file_of_a_source_that_is_a_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "capture"
        folder.mkdir()
        capture(folder / "100-1.json")

        done = opspan("export", folder, folder / "100-1.json", "--force")

        assert done.returncode == 2
        assert "which the trace was read from" in done.stderr

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_what_is_there_stays_unless_forced(self, suffix: str, source: Path, tmp_path: Path) -> None:
        out = tmp_path / f"out{suffix}"
        assert opspan("export", source, out).returncode == 0
        before = out.stat().st_ino

        refused = opspan("export", source, out)
        kept = out.stat().st_ino
        forced = opspan("export", source, out, "--force")

        assert refused.returncode == 2
        assert "--force" in refused.stderr
        assert kept == before
        assert forced.returncode == 0, forced.stderr
        assert out.stat().st_ino != before
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, out.name])

    def test_a_folder_that_is_no_trace_is_not_replaced(self, source: Path, tmp_path: Path) -> None:
        for name in ("mine.parquet", "mine.json"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text("mine")

            done = opspan("export", source, tmp_path / name, "--force")

            assert done.returncode == 2
            assert (tmp_path / name / "file").read_text() == "mine"

    @pytest.mark.parametrize("out", ["out", "out.txt", ".json", "out.json/", "none/out.sqlite", "none/out.json"])
    def test_a_place_that_cannot_be_is_one_line_and_two(self, out: str, source: Path, tmp_path: Path) -> None:
        (tmp_path / "out.json").mkdir()

        done = opspan("export", source, tmp_path / out, cwd=tmp_path)

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", source.name]

    def test_a_bad_source_leaves_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "bad").write_text("no trace")

        done = opspan("export", tmp_path / "bad", tmp_path / "out.sqlite")

        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert [path.name for path in tmp_path.iterdir()] == ["bad"]
