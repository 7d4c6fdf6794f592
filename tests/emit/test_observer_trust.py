"""The observer is loaded only from places where nobody else could have written it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emit.running import LOAD, forked, opspan

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

STRANGER = 12345
# A library that says that it was loaded, by a file whose name the environment has.
PLANTED = """
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded() { creat(getenv("PLANTED"), 0600); }
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory, copying_compiler: Path) -> Path:
    """good.so and planted.so, both whole, and a compiler that only copies the first."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "good.so").symlink_to(copying_compiler.parent / "good.so")
    (folder / "c++").symlink_to(copying_compiler)
    (folder / "planted.c").write_text(PLANTED)
    planted = folder / "planted.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", planted, folder / "planted.c"], check=True)
    planted.write_bytes(planted.read_bytes() + hashlib.sha256(planted.read_bytes()).digest())
    return folder


@pytest.fixture
def cache(libraries: Path, tmp_path: Path) -> Path:
    """A cache that holds a planted observer, as far as its name says a good one."""
    cache = tmp_path / "above" / "cache"
    done = load(libraries, cache)
    assert done.returncode == 0, done.stderr
    shutil.copyfile(libraries / "planted.so", observer(cache))
    return cache


def load(libraries: Path, cache: Path, code: str = LOAD, **more: str | None) -> subprocess.CompletedProcess[str]:
    env = {
        "OPSPAN_CACHE_DIR": str(cache),
        "CXX": str(libraries / "c++"),
        "PLANTED": str(cache.parent.parent / "loaded"),
    }
    return forked(code, env={**env, **more})


def observer(cache: Path) -> Path:
    (found,) = cache.glob("observer-*.so")
    return found


def was_loaded(cache: Path) -> bool:
    return (cache.parent.parent / "loaded").exists()


def test_the_planted_observer_does_say_so_where_it_is_loaded(libraries: Path, cache: Path) -> None:
    load(libraries, cache)
    assert was_loaded(cache)


@pytest.mark.parametrize(
    "spoil",
    [lambda path: os.chown(path, STRANGER, STRANGER), lambda path: path.chmod(0o666)],
    ids=["another user's", "written by others"],
)
def test_a_file_of_somebody_else_is_built_anew(libraries: Path, cache: Path, spoil: Callable[[Path], None]) -> None:
    spoil(observer(cache))

    done = load(libraries, cache)

    assert done.returncode == 0, done.stderr
    assert not was_loaded(cache)
    assert f"an observer that was built is not used, for {observer(cache)} " in done.stderr
    assert "building it anew" in done.stderr
    facts = observer(cache).stat()
    assert (facts.st_uid, facts.st_mode & 0o022) == (0, 0)
    assert load(libraries, cache).stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["cache", "above"])
@pytest.mark.parametrize(
    "spoil",
    [lambda path: os.chown(path, STRANGER, STRANGER), lambda path: path.chmod(0o777)],
    ids=["another user's", "written by others"],
)
def test_a_folder_of_somebody_else_is_neither_read_nor_written(
    libraries: Path, cache: Path, which: str, spoil: Callable[[Path], None]
) -> None:
    folder = cache if which == "cache" else cache.parent
    before = sorted(cache.iterdir())
    spoil(folder)

    done = load(libraries, cache, TMPDIR=str(cache.parent.parent))
    said = opspan("doctor", env={"OPSPAN_CACHE_DIR": str(cache), "CXX": str(libraries / "c++")}).stdout

    assert done.returncode == 0, done.stderr
    assert not was_loaded(cache)
    assert f"the cache folder cannot be used ({folder} " in done.stderr
    assert "set OPSPAN_CACHE_DIR to a folder that only you can write" in done.stderr
    assert sorted(cache.iterdir()) == before
    assert [path.name for path in cache.parent.parent.iterdir()] == ["above"]
    assert any(line.startswith("cache ") and "WRONG" in line and str(folder) in line for line in said.splitlines())


def test_without_a_compiler_the_error_says_why_what_is_there_is_not_used(
    libraries: Path, cache: Path, tmp_path: Path
) -> None:
    os.chown(observer(cache), STRANGER, STRANGER)
    (tmp_path / "empty").mkdir()

    done = load(libraries, cache, CXX=None, PATH=str(tmp_path / "empty"))

    assert done.returncode == 1
    assert not was_loaded(cache)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("opspan.errors.NoCompiler: no C++ compiler was found")
    assert last.endswith(f"is not used, for {observer(cache)} belongs to user {STRANGER}")


def test_what_was_checked_is_what_is_loaded_whatever_takes_its_name(libraries: Path, cache: Path) -> None:
    shutil.copyfile(libraries / "good.so", observer(cache))
    code = f"""
import torch
import ctypes, shutil
from opspan.emit import observer
real = ctypes.CDLL
def swapped(path, *more, **options):
    if "/observer-" in str(path) or "/proc/self/fd" in str(path):
        shutil.copyfile({str(libraries / "planted.so")!r}, {str(observer(cache)) + "2"!r})
        __import__("os").replace({str(observer(cache)) + "2"!r}, {str(observer(cache))!r})
    return real(path, *more, **options)
ctypes.CDLL = swapped
{LOAD}
"""
    done = load(libraries, cache, code)

    assert done.returncode == 0, done.stderr
    assert not was_loaded(cache)
    assert observer(cache).read_bytes() == (libraries / "planted.so").read_bytes()


@pytest.mark.parametrize("suffix", [".lock", ".log"])
def test_a_planted_link_is_not_followed(libraries: Path, cache: Path, tmp_path: Path, suffix: str) -> None:
    mine = tmp_path / "mine"
    mine.write_text("keep")
    planted = observer(cache).with_suffix(suffix)
    planted.unlink()
    planted.symlink_to(mine)
    observer(cache).unlink()

    done = load(libraries, cache)

    assert done.returncode == 0, done.stderr
    assert mine.read_text() == "keep"
    assert "is a link" in done.stderr or not planted.is_symlink()


def test_a_pipe_is_not_waited_for(libraries: Path, cache: Path) -> None:
    path = observer(cache)
    path.unlink()
    os.mkfifo(path)

    done = load(libraries, cache)

    assert done.returncode == 0, done.stderr
    assert path.is_file()
