"""`opspan demo --gpu-sample`: a page with kernels, without a GPU and without torch."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import sample
from cli.browsing import fake_browser
from emit.running import MAIN, READING, forked, opspan
from opspan.app.sample_trace import SAMPLE

WITHOUT_TORCH = f"import sys; sys.modules['torch'] = None\n{MAIN}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("sample")
    done = forked(WITHOUT_TORCH, "demo", "--gpu-sample", cwd=folder, imported=READING)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "opspan-sample-1", done.stdout.splitlines()


def test_the_sample_is_what_the_simulator_makes_and_is_small(tmp_path: Path) -> None:
    plain = sample.write(tmp_path)

    packed = sorted(SAMPLE.iterdir())
    assert [path.name for path in packed] == [f"{path.name}.gz" for path in plain]
    assert [gzip.decompress(path.read_bytes()) for path in packed] == [path.read_bytes() for path in plain]
    assert sum(path.stat().st_size for path in packed) < 100_000


def test_findings_name_the_faults_that_were_planted() -> None:
    trace = package.load(*sorted(SAMPLE.iterdir()))

    rules = trace.findings().filter(pl.col("severity") != "info")["id"]

    assert sorted(rules) == ["data-loading", "item", "step-outliers", "straggler"]


def test_a_page_with_kernels_is_written_and_a_summary_printed(shown: tuple[Path, list[str]]) -> None:
    folder, lines = shown

    assert lines[0] == f"Wrote {folder}: a simulated job of 2 ranks with 736 kernels and copies"
    assert sorted(path.name for path in folder.iterdir()) == ["rank00.json.gz", "rank01.json.gz", "report.html"]
    assert "<title>opspan: rank00.json.gz, rank01.json.gz</title>" in (folder / "report.html").read_text("utf-8")
    summary = lines[lines.index("In short, as opspan summary has it:") + 1 :]
    assert summary[0].startswith("kineto · 2 ranks · ")
    assert lines[-1] == f"All of it as a page: open {(folder / 'report.html').as_uri()} in a browser"


def test_the_commands_that_it_names_next_work(shown: tuple[Path, list[str]]) -> None:
    folder, lines = shown
    commands = [
        line.strip().split("  ")[0] for line in lines[lines.index("Next:") + 1 :] if line.startswith("  opspan ")
    ]

    assert len(commands) == 4
    for command in commands[:3]:  # the fourth is for a trace of the user's own
        done = opspan(*command.split()[1:], cwd=folder.parent)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_open_opens_its_page_and_a_folder_that_is_full_is_refused(tmp_path: Path) -> None:
    env, opened = fake_browser(tmp_path)

    done = forked(MAIN, "demo", "--gpu-sample", "--open", "-o", "s", env=env, cwd=tmp_path, imported=READING)
    again = forked(MAIN, "demo", "--gpu-sample", "-o", "s", env=env, cwd=tmp_path, imported=READING)

    assert done.stdout.splitlines()[-2:] == [
        f"All of it as a page: {tmp_path / 's' / 'report.html'}",
        "Opened it in the browser",
    ]
    assert opened.read_text() == f"{(tmp_path / 's' / 'report.html').as_uri()}\n"
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)
