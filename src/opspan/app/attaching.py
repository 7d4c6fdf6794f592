"""Asks running processes to record, for `opspan attach`. A process listens if it waits at a socket for requests to
record."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opspan.app import processes, reaching
from opspan.emit.asking import Reply, line_of, read_line, reply_of, send
from opspan.emit.asking import Request as Request
from opspan.errors import EmitError, OpspanError

# The seconds that a process may take to reply, in addition to the seconds of the recording. The process may have to
# build the observer, which takes ten seconds or more on a busy machine. It also writes the events of devices at the
# end.
_MORE_SECONDS = 300.0


def listening(pid: int) -> list[int]:
    """Returns the listening processes among `pid` and its descendants. A process that was just forked still has its
    parent's socket open. So if two processes have the same socket, only the first is returned."""
    processes.check_exists(pid)
    by_path: dict[str, int] = {}
    for process in processes.descendants(pid):
        if (path := processes.listens_at(process)) is not None:
            by_path.setdefault(path, process)
    return list(by_path.values())


@dataclass
class Attachment:
    """One process that is asked to record. When `ask` returns, `answer` or `error` is set."""

    pid: int
    connection: socket.socket
    answer: Reply | None = None
    error: OpspanError | None = None

    def wait(self, seconds: float) -> None:
        try:
            line = read_line(self.connection, seconds)
            if not line:
                raise EmitError("it ended while it was recorded")
            self.answer = reply_of(line)
        except OpspanError as error:
            self.error = EmitError(f"process {self.pid}: {error}")
        finally:
            self.connection.close()


@contextlib.contextmanager
def connected(pids: Sequence[int]) -> Iterator[list[Attachment]]:
    """Connects to all processes. If one of them cannot be reached, raises an error before any process is asked."""
    with contextlib.ExitStack() as open_:
        attachments = []
        for pid in pids:
            processes.check(pid)
            path = processes.listens_at(pid) or reaching.reach(pid)
            attachments.append(Attachment(pid, open_.enter_context(processes.connect(pid, path))))
        yield attachments


def ask(attachments: Sequence[Attachment], request: Request) -> None:
    """Makes all processes record at the same time, and waits for the replies. The first Ctrl-C ends the recordings, and
    a second one ends the waiting for replies."""
    seconds = request.seconds + _MORE_SECONDS
    threads = [threading.Thread(target=process.wait, args=(seconds,), daemon=True) for process in attachments]
    for process in attachments:
        send(process.connection, line_of(request))
    for thread in threads:
        thread.start()
    try:
        _join(threads)
    except KeyboardInterrupt:
        end(attachments)
        _join(threads)


def end(attachments: Sequence[Attachment]) -> None:
    """Ends the recordings that still run."""
    for process in attachments:
        with contextlib.suppress(OSError):
            process.connection.shutdown(socket.SHUT_WR)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
