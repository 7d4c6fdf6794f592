"""A library that was cut is an error in words: to open it would kill the process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from emit.running import opspan, run, under_collectors
from opspan import libraries

CUTS = (0, 1, 63, 64, 4096, 0.5, -1)


def folder_with_cut(tmp_path: Path, name: str, cut: float) -> Path:
    folder = tmp_path / "lib"
    shutil.copytree(libraries.folder(), folder)
    raw = (folder / name).read_bytes()
    size = int(len(raw) * cut) if isinstance(cut, float) else cut if cut >= 0 else len(raw) + cut
    (folder / name).write_bytes(raw[:size])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
def test_opening_a_cut_library_is_an_error_of_ours(cut: float, tmp_path: Path) -> None:
    folder = folder_with_cut(tmp_path, "libopspan_columns.so", cut)
    program = "from opspan import native\nnative._load()"
    done = run([sys.executable, "-c", program], env={"OPSPAN_LIB_DIR": str(folder)})

    assert done.returncode == 1, done.stderr  # and not killed by a signal
    last = done.stderr.strip().splitlines()[-1]
    assert "Error: cannot open" in last
    assert last.endswith("reinstall opspan")


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
def test_a_program_with_ranges_runs_on_beside_a_cut_library(cut: float, tmp_path: Path) -> None:
    folder = folder_with_cut(tmp_path, "libopspan_sinks.so", cut)
    program = "import opspan\nwith opspan.annotate('x'): print('inside')"
    done = run([sys.executable, "-c", program], env={"OPSPAN_LIB_DIR": str(folder)})

    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    assert "cannot open" in done.stderr


@pytest.mark.parametrize("cut", [4096, 0.5])
def test_run_gives_no_program_a_cut_library(cut: float, tmp_path: Path) -> None:
    folder = folder_with_cut(tmp_path, "libopspan_collectors.so", cut)
    done = opspan("run", "-o", tmp_path / "captured", "--", "true", env={"OPSPAN_LIB_DIR": str(folder)})

    assert done.returncode == 2
    assert "the file is cut" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_whole_libraries_pass() -> None:
    for path in libraries.folder().glob("*.so"):
        libraries.check_whole(path)
    libraries.check_whole(Path(__file__))  # no library at all: for the loader to say


def test_a_cut_tool_is_named_and_not_opened(tmp_path: Path) -> None:
    folder = folder_with_cut(tmp_path, "libopspan_collectors.so", 4096)
    program = "from opspan.emit import sink_list, tools\nprint(tools.problem(sink_list.NVTX))"
    cut = str(folder / "libopspan_collectors.so")
    done = run([sys.executable, "-c", program], env={"NVTX_INJECTION64_PATH": cut})

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"NVTX_INJECTION64_PATH={cut} cannot be loaded (the file is cut")


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 4096, 100_000])
def test_a_program_outlives_its_capture_being_cut(keep: int, tmp_path: Path) -> None:
    captured = tmp_path / "captured"
    program = """
import os, sys
import opspan
folder, keep = sys.argv[1], int(sys.argv[2])
def work(count):
    for number in range(count):
        with opspan.annotate(f"name {number % 3000}"): pass
work(20_000)
(name,) = os.listdir(folder)
os.truncate(os.path.join(folder, name), keep)
work(200_000)
print("alive")
"""
    done = run([sys.executable, "-c", program, captured, str(keep)], env=under_collectors(captured))

    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert done.stderr.count("somebody has cut the file") == 1
