"""Outputs replace files and folders alone: devices, FIFOs, links and modes stay what they are, whoever writes."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from builders import kineto
from emit.running import environment
from opspan import libraries, private_files
from opspan.errors import WriteError
from opspan.events import EventList
from opspan.profiler import memory_timeline
from opspan.tables import storage

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices, and links of others")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> opspan.Trace:
    return opspan.load(kineto.write(tmp_path_factory.mktemp("source") / "a.json"))


Write = Callable[[opspan.Trace, Path], object]


def chrome_trace_of_events(trace: opspan.Trace, path: Path) -> None:
    EventList(list(trace.events())).export_chrome_trace(path)


# For each writer the name of a file that it may replace, and the call that writes.
WRITERS: dict[str, tuple[str, Write]] = {
    "export": ("out.json", lambda trace, path: trace.export(path, overwrite=True)),
    "database": ("out.sqlite", lambda trace, path: trace.export(path, overwrite=True)),
    "packed": ("out.json.gz", lambda trace, path: trace.export(path, overwrite=True)),
    "workbook": ("out.xlsx", lambda trace, path: trace.export(path, overwrite=True)),
    "report": ("out.html", lambda trace, path: trace.report(path, overwrite=True)),
    "chrome trace": ("out", chrome_trace_of_events),
    "stacks": ("out", lambda trace, path: trace.events().export_stacks(path, "self_cpu_time_total")),
    "stacks of events": (
        "out",
        lambda trace, path: EventList(list(trace.events())).export_stacks(path, "self_cpu_time_total"),
    ),
    "memory timeline": ("out.json", lambda trace, path: memory_timeline.write(trace, None, path)),
}
needs_page = pytest.mark.skipif(not libraries.page("page.js").is_file(), reason="this build has no page: no npm")
writers = pytest.mark.parametrize(
    "writer", [pytest.param(name, marks=needs_page if name == "report" else ()) for name in WRITERS]
)


@writers
def test_a_link_stays_and_what_it_leads_to_is_replaced_with_its_mode(
    writer: str, trace: opspan.Trace, tmp_path: Path
) -> None:
    name, write = WRITERS[writer]
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real"
    real.write_bytes(b"before")
    real.chmod(0o640)
    (tmp_path / "second").symlink_to("elsewhere/real")
    link = tmp_path / name
    link.symlink_to("second")

    write(trace, link)

    assert link.readlink() == Path("second")
    assert (tmp_path / "second").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes() != b"before"
    assert sorted(path.name for path in real.parent.iterdir()) == ["real"]
    write(trace, tmp_path / "elsewhere" / name)
    if writer not in ("database", "packed"):  # both contain a time
        assert (tmp_path / "elsewhere" / name).read_bytes() == real.read_bytes()


@writers
def test_a_fifo_gets_what_a_file_would_have(writer: str, trace: opspan.Trace, tmp_path: Path) -> None:
    name, write = WRITERS[writer]
    fifo = tmp_path / name
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    got: list[bytes] = []

    def read() -> None:
        while some := os.read(reader, 1 << 16):
            got.append(some)

    reading = threading.Thread(target=read)
    holder = os.open(fifo, os.O_WRONLY)  # or the reader would see an end before it began
    reading.start()
    try:
        write(trace, fifo)
    finally:
        os.close(holder)
        reading.join(60)
        os.close(reader)

    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / "file").mkdir()
    write(trace, tmp_path / "file" / name)
    if writer in ("database", "packed"):  # both contain a time
        assert b"".join(got)[:4] == (tmp_path / "file" / name).read_bytes()[:4]
    else:
        assert b"".join(got) == (tmp_path / "file" / name).read_bytes()


@needs_root
@writers
def test_a_device_is_written_to_and_stays(writer: str, trace: opspan.Trace, tmp_path: Path) -> None:
    name, write = WRITERS[writer]
    device = tmp_path / name
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null

    write(trace, device)

    assert device.stat().st_rdev == os.makedev(1, 3)
    full = tmp_path / "full" / name
    full.parent.mkdir()
    os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    with pytest.raises((WriteError, OSError), match="No space left on device"):
        write(trace, full)
    assert full.stat().st_rdev == os.makedev(1, 7)


def test_a_profile_leaves_the_null_device_alone(trace: opspan.Trace) -> None:
    facts = os.stat(os.devnull)  # noqa: PTH116

    trace.events().export_chrome_trace(os.devnull)

    assert os.stat(os.devnull).st_ino == facts.st_ino  # noqa: PTH116


class TestRefused:
    """Existing files that an export must not replace."""

    def test_a_fifo_that_nobody_reads(self, trace: opspan.Trace, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "out.json")
        with pytest.raises(WriteError, match=r"cannot write .*: nobody reads from it"):
            trace.export(tmp_path / "out.json", overwrite=True)

    def test_a_socket(self, trace: opspan.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("out.json")
            with pytest.raises(WriteError, match="it is a socket; expected a file"):
                trace.export("out.json", overwrite=True)
        assert stat.S_ISSOCK((tmp_path / "out.json").stat().st_mode)

    @needs_root
    def test_a_disk(self, trace: opspan.Trace, tmp_path: Path) -> None:
        os.mknod(tmp_path / "out.json", 0o600 | stat.S_IFBLK, os.makedev(240, 250))  # no driver has this number
        with pytest.raises(WriteError, match="it is a disk; expected a file"):
            trace.export(tmp_path / "out.json", overwrite=True)

    @needs_root
    def test_a_link_of_another_user(self, trace: opspan.Trace, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("keep")
        (tmp_path / "out.json").symlink_to("mine")
        os.chown(tmp_path / "out.json", 12345, 12345, follow_symlinks=False)
        with pytest.raises(WriteError, match="it is a link that another user made"):
            trace.export(tmp_path / "out.json", overwrite=True)
        assert (tmp_path / "mine").read_text() == "keep"

    def test_links_in_a_circle(self, trace: opspan.Trace, tmp_path: Path) -> None:
        (tmp_path / "out.json").symlink_to("out.json")
        with pytest.raises(WriteError, match="Too many levels of symbolic links"):
            trace.export(tmp_path / "out.json", overwrite=True)

    @pytest.mark.parametrize("name", ["a.json", "null.json"])
    def test_what_is_there_unless_that_was_asked_for(self, name: str, trace: opspan.Trace, tmp_path: Path) -> None:
        (tmp_path / "real").write_text("keep")
        (tmp_path / name).symlink_to("real")
        with pytest.raises(WriteError, match="exists already"):
            trace.export(tmp_path / name)
        assert (tmp_path / "real").read_text() == "keep"


def test_a_folder_that_a_link_leads_to_is_replaced_with_its_mode(trace: opspan.Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "real")
    (tmp_path / "real").chmod(0o750)
    (tmp_path / "link").symlink_to("real")

    trace.save(tmp_path / "link", overwrite=True)

    assert (tmp_path / "link").is_symlink()
    assert storage.is_saved(tmp_path / "real")
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o750
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_a_baseline_stays_where_its_link_leads(trace: opspan.Trace, tmp_path: Path) -> None:
    trace.save_baseline(tmp_path / "real")
    (tmp_path / "real").chmod(0o664)
    (tmp_path / "link").symlink_to("real")

    trace.save_baseline(tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o664


@needs_root
def test_root_leaves_a_file_to_its_owner(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    os.chown(out, 12345, 12346)

    with private_files.unfinished(out, overwrite=True) as made:
        made.write_text("after")

    assert (out.stat().st_uid, out.stat().st_gid, out.read_text()) == (12345, 12346, "after")


def test_the_command_line_writes_into_a_pipe(tmp_path: Path) -> None:
    kineto.write(tmp_path / "a.json")
    (tmp_path / "out.stacks").symlink_to("/dev/stdout")
    command = [sys.executable, "-m", "opspan", "export", "a.json"]
    done = subprocess.run(
        [*command, "out.stacks"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    subprocess.run([*command, "other.stacks"], cwd=tmp_path, env=environment(), capture_output=True, check=True)

    assert done.stdout.startswith((tmp_path / "other.stacks").read_text())
    assert (tmp_path / "out.stacks").is_symlink()
