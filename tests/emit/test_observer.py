"""Finding, building and loading the observer: the cache, the lock, and everything that can be wrong with a machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emit.running import LOAD, environment, forked, opspan, run

pytest.importorskip("torch")

RECORD = "import torch, opspan\nwith opspan.record() as r: torch.ones(2).add(1)\nprint(r.stats.ranges)"


Load = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def load(copying_compiler: Path) -> Load:
    """Loads the observer from a cache, and has it built by the quick compiler where need be."""

    def load(cache: Path, code: str = LOAD, **more: str | None) -> subprocess.CompletedProcess[str]:
        return forked(code, env={"OPSPAN_CACHE_DIR": str(cache), "CXX": str(copying_compiler), **more})

    return load


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, load: Load) -> Path:
    """A cache with a good observer."""
    cache = tmp_path_factory.mktemp("cache")
    done = load(cache)
    assert done.returncode == 0, done.stderr
    return cache


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(built, tmp_path / "cache"))


@pytest.fixture
def no_compiler(tmp_path: Path) -> dict[str, str | None]:
    empty = tmp_path / "empty"
    empty.mkdir()
    return {"PATH": str(empty), "CXX": None}


def libraries(cache: Path) -> list[Path]:
    return sorted(cache.glob("observer-*.so"))


@pytest.mark.slow
def test_the_first_use_builds_and_says_so_the_second_does_neither(load: Load, tmp_path: Path) -> None:
    first = load(tmp_path, CXX=None)
    second = load(tmp_path, CXX=None)

    assert "building the observer for torch" in first.stderr
    assert first.stdout == second.stdout
    assert second.stderr == ""
    assert libraries(tmp_path) == [Path(first.stdout.strip())]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 32])
def test_processes_that_start_at_once_build_once(tmp_path: Path, copying_compiler: Path, count: int) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n[ "$1" = --version ] || sleep 5\nexec {copying_compiler} "$@"\n')
    slow.chmod(0o755)
    env = environment({"OPSPAN_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(slow)})
    pipe = subprocess.PIPE
    load = [sys.executable, "-c", LOAD]
    processes = [subprocess.Popen(load, env=env, stdout=pipe, stderr=pipe, text=True) for _ in range(count)]
    said = [process.communicate(timeout=300) for process in processes]

    assert [process.returncode for process in processes] == [0] * count, said
    assert len({path for path, _ in said}) == 1
    assert sum("(once, about" in errors for _, errors in said) == 1
    assert not list((tmp_path / "cache").glob("building-*"))


def test_xdg_cache_home_holds_the_cache(built: Path, copying_compiler: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "opspan")

    done = forked(LOAD, env={"OPSPAN_CACHE_DIR": None, "XDG_CACHE_HOME": str(tmp_path), "CXX": str(copying_compiler)})

    assert done.stderr == ""
    assert Path(done.stdout.strip()).parent == tmp_path / "opspan"


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 100, 20_000])
def test_a_file_that_was_cut_off_is_built_anew(load: Load, cache: Path, keep: int) -> None:
    (library,) = libraries(cache)
    library.write_bytes(library.read_bytes()[:keep])

    done = load(cache)

    assert done.returncode == 0, done.stderr
    assert "building the observer" in done.stderr
    assert load(cache).stderr == ""


@pytest.mark.slow
def test_a_whole_file_that_is_no_observer_is_built_anew(load: Load, cache: Path) -> None:
    import hashlib

    (library,) = libraries(cache)
    other = Path("/lib/x86_64-linux-gnu/libm.so.6").read_bytes()
    library.write_bytes(other + hashlib.sha256(other).digest())

    done = load(cache)

    assert done.returncode == 0, done.stderr
    assert "building it anew" in done.stderr
    assert load(cache).stderr == ""


def test_a_cache_that_cannot_be_used_costs_a_warning_and_a_private_build(load: Load, tmp_path: Path) -> None:
    # A file in the place of the folder: root may write to any folder.
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")

    done = load(in_the_way / "cache", RECORD, TMPDIR=str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert "set OPSPAN_CACHE_DIR to a folder that can be written" in done.stderr
    assert list(tmp_path.iterdir()) == [in_the_way], "the private build was left behind"


def test_without_a_compiler_an_observer_that_was_built_is_used(
    load: Load, cache: Path, no_compiler: dict[str, str | None]
) -> None:
    done = load(cache, **no_compiler)

    assert done.returncode == 0, done.stderr
    assert [Path(done.stdout.strip())] == libraries(cache)


def test_without_a_compiler_record_says_what_to_install(
    load: Load, tmp_path: Path, no_compiler: dict[str, str | None]
) -> None:
    done = load(tmp_path / "cache", RECORD, **no_compiler)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("opspan.errors.NoCompiler: no C++ compiler was found")
    assert "opspan doctor --fix" in last


def test_a_compiler_that_fails_is_one_line_and_a_log(load: Load, tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\necho "x.h:1: error: no" >&2\nexit 1\n')
    compiler.chmod(0o755)

    done = load(tmp_path / "cache", CXX=str(compiler))

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("opspan.errors.BuildFailed:")
    assert "x.h:1: error: no" in last
    log = Path(last.rsplit("see ", 1)[1])
    assert "error: no" in log.read_text()


def test_another_compiler_builds_its_own(load: Load, cache: Path, copying_compiler: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "other"
    compiler.write_text(f'#!/bin/sh\n[ "$2" = --version ] && echo other 9.9 && exit 0\nexec {copying_compiler} "$@"\n')
    compiler.chmod(0o755)

    done = load(cache, CXX=f"{compiler} -g0")

    assert done.returncode == 0, done.stderr
    assert len(libraries(cache)) == 2


def test_an_old_torch_is_a_clear_error(load: Load, cache: Path) -> None:
    done = load(cache, "import torch; torch.__version__ = '2.3.1'\n" + RECORD)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "opspan.errors.TorchUnsupported: torch 2.3.1 found, opspan needs 2.4 or newer: pip install -U torch"


def test_no_torch_is_a_clear_error(cache: Path) -> None:
    code = "import sys; sys.modules['torch'] = None\nimport opspan\nwith opspan.record(): pass"

    done = run([sys.executable, "-c", code], {"OPSPAN_CACHE_DIR": str(cache)})

    assert "TorchUnsupported: torch cannot be imported" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("pip install torch")


@pytest.mark.slow
def test_doctor_fix_builds_and_removes_what_is_stale_but_nothing_of_another_environment(
    cache: Path, copying_compiler: Path
) -> None:
    env = {"OPSPAN_CACHE_DIR": str(cache), "CXX": str(copying_compiler)}
    (good,) = libraries(cache)
    environment = good.name.split("-")[1]
    broken = cache / "observer-0123abcd-2.12.0-0000-0000.so"
    broken.write_bytes(b"")
    # Whole files: of another environment's torch, and of the torch that this environment had before.
    others, older = cache / "observer-0123abcd-2.13.0-0000-0000.so", cache / f"observer-{environment}-2.12.0-0000-0.so"
    for copy in (others, older):
        copy.write_bytes(good.read_bytes())

    before = opspan("doctor", env=env)
    done = opspan("doctor", "--fix", env=env)

    assert "2 stale or broken" in before.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert libraries(cache) == sorted([good, others])
