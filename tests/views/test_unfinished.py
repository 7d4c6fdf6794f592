"""An export leaves the complete result or nothing, even if files are planted, disks are full, or another export writes
to the same place."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import opspan
from builders.capture import Capture
from emit.running import READING, forked
from emit.running import opspan as command
from opspan.errors import WriteError
from opspan.outputs import OUTPUTS
from opspan.trace import Trace
from views.sources import nsys

SUFFIXES = [suffix for output in OUTPUTS for suffix in (output.suffixes or ("-hostname-h.csv",))]
AT_ONCE = 6


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return nsys(tmp_path / "in" / "run.sqlite")


@pytest.fixture
def trace(source: Path) -> Trace:
    return opspan.load(source)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def contents(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in (sorted(path.iterdir()) if path.is_dir() else [path])]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_links_under_names_that_can_be_guessed_are_not_followed(suffix: str, trace: Trace, folder: Path) -> None:
    mine = folder.parent / "mine"
    mine.write_text("keep")
    name = f"out{suffix}"
    guesses = [f".unfinished.{os.getpid()}.{name}", f".{name}.{os.getpid()}.unfinished", f".{name}.{os.getpid()}.old"]
    for guess in guesses:
        (folder / guess).symlink_to(mine)

    trace.export(folder / name)

    assert mine.read_text() == "keep"
    assert sorted(path.name for path in folder.iterdir()) == sorted([*guesses, name])
    assert all((folder / guess).is_symlink() for guess in guesses)


def at_once(trace: Trace, out: Path, overwrite: bool) -> list[str]:
    """Returns the results of several exports to one place. They are threads, because containers can share a process
    number."""
    start = threading.Barrier(AT_ONCE)
    said = []

    def write() -> None:
        start.wait(timeout=300)
        try:
            trace.export(out, overwrite=overwrite)
            said.append("whole")
        except WriteError as error:
            said.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(said, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_several_exports_to_one_place_at_once_are_each_whole(suffix: str, trace: Trace, folder: Path) -> None:
    alone, out = folder.parent / f"alone{suffix}", folder / f"out{suffix}"
    trace.export(alone)

    assert at_once(trace, out, overwrite=True) == ["whole"] * AT_ONCE
    assert [path.name for path in folder.iterdir()] == [out.name]
    if ".gz" not in suffix:  # a .gz file has its name and time inside
        assert contents(out) == contents(alone)


@pytest.mark.parametrize("suffix", [".json", ".sqlite", ".parquet"])
def test_where_nothing_may_be_replaced_one_is_whole_and_the_others_are_told(
    suffix: str, trace: Trace, folder: Path
) -> None:
    out = folder / f"out{suffix}"

    said = at_once(trace, out, overwrite=False)

    assert said == ["whole"] + [
        f"{out} exists already. Nothing was written: choose another name, or give --force to replace it"
    ] * (AT_ONCE - 1)
    assert [path.name for path in folder.iterdir()] == [out.name]


# The limit is that of every file, and what is said goes to one.
LIMITED = """
import contextlib, io, resource, sys
from opspan.cli import main
sys.dont_write_bytecode = True
most_bytes, *sys.argv[1:] = sys.argv[1:]
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
said = io.StringIO()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(most_bytes), most))
try:
    with contextlib.redirect_stderr(said):
        main()
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    sys.stderr.write(said.getvalue())
"""


def run_limited(source: Path, out: Path, most_bytes: int) -> subprocess.CompletedProcess[str]:
    return forked(LIMITED, str(most_bytes), "export", source, out, imported=READING)


def is_one_sentence(done: subprocess.CompletedProcess[str], out: Path) -> bool:
    return (
        (done.returncode, done.stdout) == (2, "")
        and done.stderr.startswith(f"error: cannot write {out}")
        and (done.stderr.count("\n") == 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_does_not_fit_leaves_nothing_beside_what_was_there(suffix: str, source: Path, folder: Path) -> None:
    out = folder / f"out{suffix}"

    done = run_limited(source, out, 100)

    assert is_one_sentence(done, out), done.stdout + done.stderr
    assert list(folder.iterdir()) == []


@pytest.fixture
def full_disk(folder: Path) -> Iterator[Path]:
    """A disk with room for names and for nothing in them."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "opspan-test", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a full disk can be had by root alone, and not everywhere")
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_nothing_beside_what_was_there(suffix: str, source: Path, full_disk: Path) -> None:
    out = full_disk / f"out{suffix}"

    done = command("export", source, out)

    assert is_one_sentence(done, out), done.stdout + done.stderr
    assert [path.name for path in full_disk.iterdir()] == ["filler"]


@pytest.mark.slow
@pytest.mark.parametrize("most_bytes", [50_000, 150_000, 400_000])
def test_a_database_that_ends_in_the_middle_leaves_no_journal(most_bytes: int, folder: Path) -> None:
    made = Capture(pid=1)
    thread = made.thread(1, chunk_units=6400)
    for number in range(5000):
        thread.range(f"a name of its own {number}", number * 10, number * 10 + 5)
    source = made.write(folder.parent / "1-1.opspan")
    out = folder / "out.sqlite"

    done = run_limited(source, out, most_bytes)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stdout + done.stderr
    assert list(folder.iterdir()) == []
