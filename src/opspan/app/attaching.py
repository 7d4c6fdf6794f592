"""Asks running processes to record: what `opspan attach` does, without its words."""

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

# To build the observer, which takes some ten seconds and more on a busy machine, and to write what devices did.
_MORE_SECONDS = 300.0


def listening(pid: int) -> list[int]:
    """`pid` and those below it that listen. A process that was forked just now still has its parent's socket."""
    processes.check_exists(pid)
    found: dict[str, int] = {}
    for one in processes.descendants(pid):
        if (path := processes.listens_at(one)) is not None:
            found.setdefault(path, one)
    return list(found.values())


@dataclass
class Asking:
    """One process that is asked. What it answers is there when `ask` is over."""

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
def connected(pids: Sequence[int]) -> Iterator[list[Asking]]:
    """All of them, or none is asked."""
    with contextlib.ExitStack() as open_:
        found = []
        for pid in pids:
            processes.check(pid)
            path = processes.listens_at(pid) or reaching.reach(pid)
            found.append(Asking(pid, open_.enter_context(processes.connect(pid, path))))
        yield found


def ask(all_: Sequence[Asking], asked: Request) -> None:
    """Have them record, all at once, until each has answered. Ctrl-C ends the recordings early, another the wait."""
    threads = [threading.Thread(target=one.wait, args=(asked.seconds + _MORE_SECONDS,), daemon=True) for one in all_]
    for one in all_:
        send(one.connection, line_of(asked))
    for thread in threads:
        thread.start()
    try:
        _join(threads)
    except KeyboardInterrupt:
        end(all_)
        _join(threads)


def end(all_: Sequence[Asking]) -> None:
    """Have those end that still record."""
    for one in all_:
        with contextlib.suppress(OSError):
            one.connection.shutdown(socket.SHUT_WR)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
