"""Reports by an nsys that is a script: which versions cannot read which, and what becomes of the exports."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import nsys as build
from opspan.errors import ReadError, TooNew
from opspan.readers.nsys import exports, reports

DAY = 24 * 3600
HEAD = b"NVIDIA Tegra Profiler Report "


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of exports. The installed nsys is a 2022.4.2.1 that copies a file, where it is told of one."""
    build.run(tmp_path / "made.sqlite", "2022")
    says(tmp_path, f'cp "{tmp_path}/made.sqlite" "$5"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("OPSPAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "exports"


def says(folder: Path, script: str) -> None:
    nsys = folder / "bin" / "nsys"
    nsys.parent.mkdir(exist_ok=True)
    version = 'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2022.4.2.1-df9881f"; exit; fi'
    nsys.write_text(f"#!/bin/sh\n{version}\n{script}\n")
    nsys.chmod(0o755)


def report(folder: Path, raw: bytes = b"1.\n", name: str = "run.nsys-rep") -> Path:
    path = folder / name
    path.write_bytes(HEAD + raw)
    return path


# Errors of nsys versions for a report that is too new for them.
FAILURES = [
    'echo "Exportation error: Version number is invalid: 2026@1@2@63-261237296639v0" >&2; exit 1',
    'echo "Exportation error: Protobuf parsing failed" >&2; exit 1',
    'echo "[libprotobuf FATAL] CHECK failed" >&2; kill -6 $$',
    'echo "Unsupported event type 92"; exit 0',
    "exit 3",
]
OLD = b"1.\n\x0bLocal (CLI)\x12\x02\x08\x0cNSIGHT_COMPUTE_VERSION=2027.3.0.22 driver 2026.9.9.9 ext-2026.4.0-linux-x64 "


@pytest.mark.parametrize("script", FAILURES, ids=range(len(FAILURES)))
@pytest.mark.parametrize(
    ("raw", "version"),
    [
        (b"2026@1@2@63-261237296639v0\n", "2026.1.2.63"),
        (OLD + b"2023.4.4.54-234433681190v0", "2023.4.4.54"),
        (OLD + b"2022.5.1.82-32078057v0:", "2022.5.1.82"),
        (OLD + b"2023.1.1.1-df9881f:" + b"\0" * 100, "2023.1.1.1"),
    ],
)
def test_a_report_that_is_too_new_says_by_whom_however_nsys_fails(
    cache: Path, tmp_path: Path, raw: bytes, version: str, script: str
) -> None:
    path = report(tmp_path, raw)
    says(tmp_path, script)

    with pytest.raises(TooNew, match=f"was written by nsys {version} and the installed nsys is 2022.4.2.1") as caught:
        opspan.load(path)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("script", FAILURES, ids=range(len(FAILURES)))
def test_a_report_that_is_not_newer_is_damaged_and_of_one_that_does_not_say_either_may_be(
    cache: Path, tmp_path: Path, script: str
) -> None:
    says(tmp_path, script)
    with pytest.raises(ReadError, match="could not be exported by nsys 2022") as caught:
        opspan.load(report(tmp_path, OLD + b"2022.4.2.50-32196742v0:"))  # another build of what is installed
    assert "newer" not in str(caught.value)
    with pytest.raises(ReadError, match="if a newer nsys wrote it, update Nsight Systems; else copy"):
        opspan.load(report(tmp_path, OLD))


def test_a_version_is_found_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_PIECE_BYTES", 128)
    built = b"2023.4.4.54-234433681190v0"
    for at in range(300):
        assert reports._written_by(report(tmp_path, b"1.\n" + b"\0" * at + built + b"\0" * 200)) == "2023.4.4.54"


@pytest.mark.parametrize(
    ("name", "version"), [("conductor", "2021.5.2.53"), ("nvtx_only", "2022.4.2.1"), ("too_new", "2026.1.2.63")]
)
def test_real_reports_say_what_wrote_them(traces_dir: Path, name: str, version: str) -> None:
    path = traces_dir / "nsys" / f"{name}.nsys-rep"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the recorded traces")
    assert reports._written_by(path) == version


# --- what becomes of exports


def put(cache: Path, name: str, size: int, days: float) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / name
    with path.open("wb") as file:
        file.truncate(size)
    used = time.time() - days * DAY
    os.utime(path, (used, used))
    return path


def test_an_export_is_made_once(cache: Path, tmp_path: Path) -> None:
    path = report(tmp_path)
    assert opspan.load(path).ranges.height == 5
    says(tmp_path, "exit 1")
    assert opspan.load(path).ranges.height == 5
    assert len(list(cache.iterdir())) == 1


def test_exports_that_nobody_used_for_long_go(cache: Path, tmp_path: Path) -> None:
    old, recent = put(cache, "old.sqlite", 10, 31), put(cache, "recent.sqlite", 10, 29)
    other = put(cache, "notes.txt", 10, 400)
    killed = cache / "tmp1"
    killed.mkdir()
    os.utime(killed, (0, 0))

    opspan.load(report(tmp_path))

    assert not old.exists()
    assert not killed.exists()
    assert recent.exists()
    assert other.exists()


def test_the_least_recently_used_exports_go_where_there_are_too_many(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report(tmp_path)
    opspan.load(path)
    (mine,) = cache.iterdir()
    files = [put(cache, f"{days}.sqlite", 1000, days) for days in (1, 2, 3, 4)]
    os.utime(mine, (0, mine.stat().st_mtime))  # made first, and used now
    monkeypatch.setattr(exports, "MOST_BYTES", mine.stat().st_size + 2500)

    opspan.load(path)

    assert mine.exists()
    assert [file.exists() for file in files] == [True, True, False, False]


def test_an_export_that_is_in_use_stays(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MOST_BYTES", 0)
    held = put(cache, "held.sqlite", 10, 50)
    program = f"""
from contextlib import ExitStack
from pathlib import Path
from opspan.readers.nsys import exports
with ExitStack() as stack:
    print(exports.hold(Path({str(held)!r}), stack), flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "True\n"
        os.utime(held, (0, 0))
        path = report(tmp_path)
        assert opspan.load(path).ranges.height == 5  # nor does it take its own away while it reads it
        assert held.exists()
        reader.communicate("\n")
    opspan.load(path)
    assert not held.exists()


def test_using_an_export_does_not_look_like_writing_it(cache: Path, tmp_path: Path) -> None:
    path = put(cache, "one.sqlite", 10, 5)
    before = path.stat()
    with ExitStack() as stack:
        assert exports.hold(path, stack)
        assert not exports.hold(cache / "none.sqlite", stack)
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    assert after.st_atime_ns > before.st_atime_ns


def test_what_cannot_be_removed_is_no_error(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    old = put(cache, "old.sqlite", 10, 31)
    monkeypatch.setattr(Path, "unlink", refuse)
    exports.remove_old(cache)
    exports.remove_old(cache / "none")
    assert old.exists()


def test_without_a_home_it_says_what_to_set(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("OPSPAN_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(opspan.OpspanError, match="set OPSPAN_CACHE_DIR"):
        opspan.load(report(tmp_path))


# --- whose exports are used

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@needs_root
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: os.chown(path, 12345, 12345), id="another user's"),
        pytest.param(lambda path: path.chmod(0o666), id="written by others"),
        pytest.param(lambda path: (path.unlink(), path.symlink_to("/dev/null")), id="a link"),
        pytest.param(lambda path: (path.unlink(), os.mkfifo(path)), id="a pipe"),
    ],
)
def test_an_export_that_somebody_else_could_have_written_is_made_anew(
    cache: Path, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    path = report(tmp_path)
    opspan.load(path)
    (export,) = cache.iterdir()
    export.write_bytes(b"not what nsys wrote")
    spoil(export)

    assert opspan.load(path).ranges.height == 5

    assert list(cache.iterdir()) == [export]
    assert (export.stat().st_uid, export.stat().st_mode & 0o777) == (os.geteuid(), 0o600)


@needs_root
def test_a_cache_of_somebody_else_is_neither_read_nor_written_and_that_is_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report(tmp_path)
    opspan.load(path)
    (export,) = cache.iterdir()
    export.write_bytes(b"not what nsys wrote")
    os.chown(cache.parent, 12345, 12345)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    loaded = opspan.load(path)

    assert loaded.ranges.height == 5
    (message,) = loaded.issues.filter(pl.col("code") == "not_kept")["message"]
    assert f"{cache.parent} belongs to user 12345" in message
    assert export.read_bytes() == b"not what nsys wrote"
    assert list(temporary.iterdir()) == []


def test_exports_are_for_this_user_alone(cache: Path, tmp_path: Path) -> None:
    opspan.load(report(tmp_path))
    (export,) = cache.iterdir()
    assert (cache.stat().st_mode & 0o777, export.stat().st_mode & 0o777) == (0o700, 0o600)


def test_what_a_killed_reader_left_goes_at_the_next_use(cache: Path, tmp_path: Path) -> None:
    says(tmp_path, f'cp "{tmp_path}/made.sqlite" "$5"; kill -9 $PPID')
    program = f"import opspan; opspan.load({str(report(tmp_path))!r})"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert len(list(cache.iterdir())) == 1

    says(tmp_path, f'cp "{tmp_path}/made.sqlite" "$5"')
    opspan.load(report(tmp_path))
    assert [path.suffix for path in cache.iterdir()] == [".sqlite"]
