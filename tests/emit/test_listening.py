"""opspan.listen: who may ask, what is asked, and what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emit.running import environment
from opspan.app import attaching, processes
from opspan.emit import asking
from opspan.emit.asking import Request, line_of, reply_of, request_of
from opspan.errors import EmitError, UsageError

LISTENS = "import opspan, sys; opspan.listen(); print('ready', flush=True); sys.stdin.read()"
OTHER = 65_534  # a user that is not root, where root runs the tests


@contextlib.contextmanager
def running(code: str, **more: str | None) -> Iterator[subprocess.Popen[str]]:
    """A program that has said it is ready, and that ends when its input does."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], env=environment(more), stdin=pipe, stdout=pipe, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        try:
            yield program
        finally:
            program.communicate(timeout=300)


def path_of(pid: int) -> Path:
    path = processes.listens_at(pid)
    assert path is not None
    return Path(path)


def said_to(path: Path, line: bytes) -> str:
    """The error that is answered."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(line)
        with pytest.raises(EmitError) as caught:
            reply_of(asking.read_line(connection, 30))
    return str(caught.value)


def asked(folder: str = "/no/such", **more: object) -> Request:
    values = {"steps": 0, "seconds": 1.0, "shapes": False, "stacks": False, "memory": False, "modules": False}
    return Request(folder, **{**values, "devices": False, **more})  # type: ignore[arg-type]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_only_the_user_can_come_near_and_nothing_is_left_in_the_end(short: Path) -> None:
    with running(LISTENS, TMPDIR=str(short)) as program:
        path = path_of(program.pid)
        assert path.parent.parent == short
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.stat().st_uid == path.parent.stat().st_uid == os.geteuid()

    assert not list(short.iterdir())


def test_what_a_killed_process_left_is_no_obstacle_and_goes(short: Path) -> None:
    with running(LISTENS, TMPDIR=str(short)) as program:
        stale = path_of(program.pid)
        program.kill()
    assert stale.exists()
    with pytest.raises(UsageError, match=f"there is no process {program.pid}"):
        processes.check(program.pid)

    with running(LISTENS, TMPDIR=str(short)) as program:
        assert path_of(program.pid).exists()
        assert not stale.exists()


def test_where_temporary_folders_have_long_names_it_listens_elsewhere(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    with running(LISTENS, TMPDIR=str(long)) as program:
        assert said_to(path_of(program.pid), line_of(asked())).startswith("that process has not imported torch")


def test_where_it_cannot_listen_the_program_runs_on_with_a_warning() -> None:
    code = """
import tempfile, opspan, warnings
tempfile.tempdir = "/no/such"
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    opspan.listen()
print(len(said), "nobody can attach" in str(said[0].message))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=300)

    assert (done.stdout, done.stderr) == ("1 True\n", "")


def test_a_process_without_torch_says_so() -> None:
    with running(LISTENS) as program, attaching.connected([program.pid]) as all_:
        attaching.ask(all_, asked())

    assert re.fullmatch(rf"process {program.pid}: that process has not imported torch: .*", str(all_[0].error))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\n", "not a JSON object"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"[" * 60_000 + b"\n", "not a JSON object"),
        (b'{"folder": "/tmp"}\n', "other fields than expected"),
        (line_of(asked(folder="relative")), "an absolute path"),
        (line_of(asked(folder="/with\0zero")), "an absolute path"),
        (line_of(asked(seconds=-1.0)), "cannot be recorded"),
        (line_of(asked(seconds=float("nan"))), "cannot be recorded"),
        (line_of(asked(steps=True)), "other fields than expected"),
        (b"x" * 100_000, "the line is longer than"),
        (b"\x1b[2J\n", r"b'\\x1b[2J\\n'"),
    ],
)
def test_what_cannot_be_asked_is_answered_with_a_sentence(line: bytes, said: str) -> None:
    with running(LISTENS) as program:
        assert said.replace("\\\\", "\\") in said_to(path_of(program.pid), line)
        assert said_to(path_of(program.pid), line_of(asked())).startswith("that process has not imported torch")


def test_many_who_only_stand_there_are_no_obstacle() -> None:
    with running(LISTENS) as program, contextlib.ExitStack() as open_:
        path = path_of(program.pid)
        for _ in range(30):
            open_.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        assert said_to(path, line_of(asked())).startswith("that process has not imported torch")


def lies(answer: Callable[[socket.socket], None], folder: Path, name: str = asking.SOCKET) -> None:
    """A socket of this process that has the right name, and one who asks at it."""
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(str(folder / name))
        liar.listen()

        def serve() -> None:
            connection, _ = liar.accept()
            with connection, contextlib.suppress(OSError):
                asking.read_line(connection, 5)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        with attaching.connected([os.getpid()]) as all_:
            attaching.ask(all_, asked())
        thread.join()
    assert all_[0].error is not None
    raise all_[0].error


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"rubbish\n", "not a JSON object"),
        (b"", "it ended while it was recorded"),
        (b'{"file": 1}\n', "other fields"),
        (b'{"file": "f", "steps": 1, "ranges": 1, "notes": [1]}\n', "other fields"),
        (b"y" * 1_000_000, "the line is longer than"),
        (json.dumps({"error": "\x1b[2Jlong" * 9_000}).encode() + b"\n", "the line is longer than|characters more"),
        (b'{"error": "\\u001b[2J"}\n', r"\\x1b\[2J"),
    ],
)
def test_a_socket_that_lies_gets_one_sentence(answer: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(EmitError, match=said) as caught:
        lies(lambda connection: connection.sendall(answer), tmp_path)

    assert len(str(caught.value)) < 11_000
    assert str(caught.value).isprintable()


def test_one_that_never_answers_is_waited_for_so_long_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "_MORE_SECONDS", -0.9)
    with pytest.raises(EmitError, match="no answer within"):
        lies(lambda connection: connection.recv(1), tmp_path)


def test_a_socket_that_another_process_listens_at_is_none_of_this_one(tmp_path: Path) -> None:
    # A child has its parent's socket open, where neither the child nor Python was asked.
    with socket.socket(socket.AF_UNIX) as parent:
        parent.bind(str(tmp_path / asking.SOCKET))
        parent.listen()
        child = subprocess.Popen(["sleep", "60"], pass_fds=[parent.fileno()])
        try:
            with pytest.raises(UsageError, match=f"at the socket of process {child.pid} listens process {os.getpid()}"):
                attaching.connected([child.pid]).__enter__()
        finally:
            child.kill()
            child.wait()


def test_a_fork_has_nothing_of_its_parents_socket_and_may_listen_for_itself() -> None:
    code = """
import opspan, os, sys
opspan.listen()
child = os.fork()
if child == 0:
    sys.stdin.read()
    opspan.listen()
    os._exit(0)
print("ready", flush=True)
sys.stdin.read()
os.waitpid(child, 0)
"""
    with running(code) as program:
        family = processes.descendants(program.pid)
        assert len(family) == 2
        assert attaching.listening(program.pid) == [program.pid]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_neither_find_nor_ask_it() -> None:
    with running(LISTENS) as program:
        path = path_of(program.pid)
        ask = f"""
import os, socket, sys
from opspan.app import attaching, reaching
from opspan.emit.asking import read_line
os.setgid({OTHER}); os.setuid({OTHER})
try:
    attaching.connected([{program.pid}]).__enter__()
except Exception as error:
    print(error)
try:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect({str(path)!r})
    connection.sendall({line_of(asked())!r})
    print(read_line(connection, 10).decode().strip())
except OSError as error:
    print(error.strerror)
"""
        shut = subprocess.run(
            [sys.executable, "-c", ask], env=environment(), capture_output=True, text=True, timeout=300
        )
        path.parent.chmod(0o755)
        path.chmod(0o666)
        open_ = subprocess.run(
            [sys.executable, "-c", ask], env=environment(), capture_output=True, text=True, timeout=300
        )

    refused = f"process {program.pid} is another user's: who it belongs to may attach, and nobody else"
    assert shut.stdout.splitlines() == [refused, "Permission denied"], shut.stderr
    assert open_.stdout.splitlines() == [refused, '{"error": "that process is another user\'s"}'], open_.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_is_another_user_too() -> None:
    code = f"import os, sys; os.setgid({OTHER}); os.setuid({OTHER}); print('ready', flush=True); sys.stdin.read()"
    with running(code) as program, pytest.raises(UsageError, match=f"process {program.pid} is another user's"):
        attaching.connected([program.pid]).__enter__()


@pytest.mark.skipif(not hasattr(sys, "remote_exec"), reason="Python 3.14 and newer")
def test_a_process_that_was_not_made_ready_is_reached() -> None:
    code = "import time; print('ready', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    with running(code) as program:
        with attaching.connected([program.pid]) as all_:
            attaching.ask(all_, asked())
        program.send_signal(signal.SIGKILL)

    assert "has not imported torch" in str(all_[0].error)


def test_a_line_is_what_it_was() -> None:
    told = asked(folder="/\udcff", steps=3)
    assert request_of(line_of(told)) == told
