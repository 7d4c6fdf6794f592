"""Places where the observer is built and loaded: without permission to execute, on a full disk, without /proc, with a
compiler that fails."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from emit.running import LOAD, forked, opspan, run, under_collectors

pytest.importorskip("torch")

RECORD = "import torch, opspan\nwith opspan.record() as r: torch.ones(2).add(1)\nprint(len(r.trace.ranges) > 0)"
# As if what lies in these folders could not be run. A copy in memory is one of /memfd.
NOTHING_RUNS = """
import ctypes, mmap, os, sys
NOEXEC = tuple(sys.argv[1:])
def lies_there(name):
    return str(name).startswith(NOEXEC) or os.path.realpath(str(name)).startswith(NOEXEC)
class Library(ctypes.CDLL):
    def __init__(self, name, *more, **options):
        if name is not None and lies_there(name):
            raise OSError(f"{name}: failed to map segment from shared object")
        super().__init__(name, *more, **options)
ctypes.CDLL = Library
mapped = mmap.mmap
def map_unless_there(descriptor, *more, prot=3, **options):
    if prot & mmap.PROT_EXEC and descriptor >= 0 and lies_there(f"/proc/self/fd/{descriptor}"):
        raise PermissionError(1, "Operation not permitted")
    return mapped(descriptor, *more, prot=prot, **options)
mmap.mmap = map_unless_there
"""


def in_namespace(mounts: str, command: list[str | Path], **env: str) -> subprocess.CompletedProcess[str]:
    """A command that sees other mounts than the test."""
    script = f"set -e\n{mounts}\nexec {shlex.join(map(str, command))}"
    return run(["unshare", "-m", "sh", "-c", script], env)


@pytest.fixture(scope="module")
def mounting(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = shlex.quote(str(tmp_path_factory.mktemp("mount")))
    try:
        done = in_namespace(f"mount -t tmpfs -o noexec tmpfs {folder}", ["true"])
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """A compiler that is killed."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\nkill -SEGV $$\n')
    compiler.chmod(0o755)
    return compiler


@pytest.mark.slow
@pytest.mark.usefixtures("mounting")
def test_a_cache_that_is_mounted_noexec_is_used(tmp_path: Path, copying_compiler: Path) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    for folder in (cache, temporary):
        folder.mkdir()
    mounts = "\n".join(
        f"mount -t tmpfs -o noexec,mode=755 tmpfs {shlex.quote(str(path))}" for path in (cache, temporary)
    )
    python = shlex.quote(sys.executable)
    twice = f"{python} -c {shlex.quote(RECORD)}\n" * 2 + f"{python} -m opspan doctor\nls {shlex.quote(str(temporary))}"

    done = in_namespace(
        mounts,
        ["sh", "-c", twice],
        OPSPAN_CACHE_DIR=str(cache),
        TMPDIR=str(temporary),
        CXX=str(copying_compiler),
    )

    assert done.stdout.startswith("True\nTrue\n"), done.stderr
    assert "mounted noexec: the observer is loaded from a copy of it" in done.stdout
    assert done.stdout.splitlines()[-1] == "Nothing is wrong: what is optional may stay as it is."
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("opspan: building the observer")


def test_a_cache_in_which_nothing_runs_is_used(tmp_path: Path, copying_compiler: Path) -> None:
    cache = tmp_path / "cache"
    env = {"OPSPAN_CACHE_DIR": str(cache), "CXX": str(copying_compiler)}

    first, second = (forked(NOTHING_RUNS + RECORD, cache, env=env) for _ in range(2))

    assert (first.stdout, second.stdout) == ("True\n", "True\n"), first.stderr + second.stderr
    assert "Warning" not in first.stderr
    assert second.stderr == ""


def test_memory_in_which_nothing_runs_leaves_a_temporary_folder(tmp_path: Path, copying_compiler: Path) -> None:
    cache = tmp_path / "cache"
    env = {"OPSPAN_CACHE_DIR": str(cache), "CXX": str(copying_compiler), "TMPDIR": str(tmp_path)}

    done = forked(NOTHING_RUNS + RECORD, cache, "/memfd:", env=env)

    assert done.stdout == "True\n", done.stderr
    assert list(tmp_path.iterdir()) == [cache]


def test_where_nothing_runs_at_all_one_warning_says_so_and_torch_labels(tmp_path: Path, copying_compiler: Path) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    env = {"OPSPAN_CACHE_DIR": str(cache), "CXX": str(copying_compiler), "TMPDIR": str(temporary)}
    label = "import torch, opspan\nwith opspan.emit_itt() as e: torch.ones(2).add(1)\nprint(e.labels)"

    recorded = forked(NOTHING_RUNS + RECORD, cache, temporary, "/memfd:", env=env)
    labelled = forked(
        NOTHING_RUNS + label, cache, temporary, "/memfd:", env={**env, **under_collectors(tmp_path / "captured")}
    )

    assert "ObserverError" in recorded.stderr.splitlines()[-1]
    assert "its file system lets nothing run: mounted noexec; nor does a copy" in recorded.stderr.splitlines()[-1]
    assert labelled.stdout == "torch\n", labelled.stderr
    assert labelled.stderr.count("Warning: ") == 1
    assert "mounted noexec" in labelled.stderr
    assert "torch's own emitter labels instead" in labelled.stderr
    assert not list(temporary.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("mounting")
def test_without_proc_the_observer_is_built_and_loaded(tmp_path: Path, copying_compiler: Path) -> None:
    (tmp_path / "temporary").mkdir()
    env = {
        "OPSPAN_CACHE_DIR": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "temporary"),
        "CXX": str(copying_compiler),
    }
    python, hide = [sys.executable, "-c", RECORD], "mount -t tmpfs tmpfs /proc"

    first, second = (in_namespace(hide, python, **env) for _ in range(2))
    attached = in_namespace(hide, [sys.executable, "-m", "opspan", "attach", "1"])

    assert (first.stdout, second.stdout) == ("True\n", "True\n"), first.stderr + second.stderr
    assert first.stderr.count("building the observer") == 1
    assert "building the observer" not in second.stderr
    assert not list((tmp_path / "temporary").iterdir())
    assert attached.returncode == 2
    assert attached.stderr.startswith("error: /proc is not mounted here")


def test_another_file_is_not_loaded_by_its_name_where_there_is_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opspan import private_files

    file = tmp_path / "file"
    file.write_text("checked")
    monkeypatch.setattr("os.path.exists", lambda _: False)
    with file.open() as opened:
        assert private_files.path_of(opened.fileno(), file) == str(file)
        (tmp_path / "other").write_text("not checked")
        (tmp_path / "other").rename(file)
        with pytest.raises(FileNotFoundError, match="another file has taken its name"):
            private_files.path_of(opened.fileno(), file)


def test_a_disk_that_is_full_costs_a_warning_and_a_private_build(tmp_path: Path, copying_compiler: Path) -> None:
    compiler = tmp_path / "c++"
    full = 'for last; do :; done; case "$last" in */cache/*) echo "as: No space left on device" >&2; exit 1;; esac'
    compiler.write_text(f'#!/bin/sh\n{full}\nexec {shlex.quote(str(copying_compiler))} "$@"\n')
    compiler.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    env = {"OPSPAN_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(compiler), "TMPDIR": str(tmp_path / "temporary")}

    done = forked(RECORD, env=env)

    assert done.stdout == "True\n", done.stderr
    assert "the cache folder cannot be used" in done.stderr
    assert "No space left on device" in done.stderr
    assert not list((tmp_path / "temporary").iterdir())
    assert not list((tmp_path / "cache").glob("building-*"))


def test_a_failed_private_build_leaves_nothing(tmp_path: Path, failing: Path) -> None:
    (tmp_path / "file").write_text("")  # in the place of the cache: root may write to any folder
    (tmp_path / "temporary").mkdir()
    env = {
        "OPSPAN_CACHE_DIR": str(tmp_path / "file" / "cache"),
        "CXX": str(failing),
        "TMPDIR": str(tmp_path / "temporary"),
    }

    done = forked(LOAD, env=env)

    last = done.stderr.splitlines()[-1]
    assert last == f"opspan.errors.BuildFailed: {failing} could not build the observer (killed by signal 11)"
    assert not list((tmp_path / "temporary").iterdir())


def test_a_compiler_that_fails_leaves_torchs_own_emitter(tmp_path: Path, failing: Path) -> None:
    code = "import torch, opspan\nwith opspan.emit_itt() as e: torch.ones(2).add(1)\nprint(e.labels)"
    env = {"OPSPAN_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(failing), **under_collectors(tmp_path / "captured")}

    done = forked(code, env=env)

    assert done.stdout == "torch\n", done.stderr
    assert done.stderr.count("Warning: ") == 1
    assert "could not build the observer (killed by signal 11)" in done.stderr
    assert "torch's own emitter labels instead" in done.stderr


def test_what_was_not_recorded_is_said_with_its_cause(tmp_path: Path) -> None:
    code = """
import torch, opspan
from opspan.profiler import profile
prof, recording = profile(), opspan.record()
for one in (prof, recording):
    try:
        one.__enter__()
    except opspan.OpspanError:
        torch.ones(2).add(1)
    one.__exit__(None, None, None)
    try:
        one.events()
    except RuntimeError as error:
        print(error)
"""
    done = forked(code, env={"OPSPAN_CACHE_DIR": str(tmp_path), "CXX": "no-such-compiler"})

    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert line.startswith("nothing was recorded: CXX=no-such-compiler names no program that is there")


def test_a_library_for_other_programs_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opspan import libraries

    monkeypatch.setattr(libraries, "may_run", lambda _: False)
    with pytest.raises(OSError, match="mounted noexec"):
        libraries.check_for_others(libraries.collectors())


def test_doctor_does_not_take_a_tool_for_good_that_fails(tmp_path: Path) -> None:
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\necho boost::filesystem_error >&2\nexit 1\n")
    tool.chmod(0o755)

    done = opspan("doctor", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})

    line = next(line for line in done.stdout.splitlines() if line.startswith("nsys "))
    assert line.split()[1] == "WRONG"
    assert "does not run: boost::filesystem_error" in line
