"""listen: makes this process ready to be recorded whenever `opspan attach` asks. Until then nothing is observed.

A thread waits at a Unix socket in a folder that only this user can enter. Each request has a thread until it is
answered. These threads block signals, because signals are meant for the program. A forked process does not listen, and
closes its copies of the sockets and other descriptors of this module.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from opspan import private_files
from opspan.emit import notices
from opspan.emit.asking import SOCKET, line_of, peer, read_line, request_of, send
from opspan.emit.on_demand import Bell, record_for
from opspan.emit.step_ends import watch_optimizers
from opspan.emit.torch_import import when_torch_is_imported
from opspan.errors import EmitError, OpspanError

# Maximum number of open requests. The connection of any further request is closed without a reply. If four recordings
# are already running (CAPTURES of sink_list), a request gets an error as its reply.
_MOST_AT_ONCE: Final = 64
_TO_ASK_SECONDS: Final = 5.0
_TO_END_SECONDS: Final = 10.0
# Signals that a fault of the thread itself raises. They are not blocked.
_OWN_SIGNALS: Final = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}

_lock = threading.RLock()
_listener: _Listener | None = None


def listen() -> None:
    """Let `opspan attach` and `opspan top` of the same user record this process.

    Call it once. A forked process does not listen until it calls this function again.
    """
    global _listener
    with _lock:
        if _listener is not None:
            return
        try:
            _listener = _Listener()
        except OSError as error:
            notices.warn(f"this process does not listen, nobody can attach: {error}", stacklevel=2)
            return
    when_torch_is_imported(watch_optimizers)


class _Listener:
    def __init__(self) -> None:
        self._requests: dict[threading.Thread, tuple[socket.socket, Bell]] = {}
        self._owner = os.getpid()
        self._over = threading.Event()
        self._folder = contextlib.ExitStack()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path = self._folder.enter_context(private_files.claimed(_short_parent(), "opspan-listen-")) / SOCKET
            self._socket.bind(str(path))
            path.chmod(0o600)  # before this line, only the folder's mode keeps other users out
            self._socket.listen(_MOST_AT_ONCE)
            _start_thread(self._serve)
        except BaseException:
            self._socket.close()
            self._folder.close()
            raise
        atexit.register(self._end)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._over.wait(1):  # otherwise no descriptor is free at the moment: try again
                    return
                continue
            try:
                if len(self._requests) < _MOST_AT_ONCE:
                    _start_thread(functools.partial(self._answer, connection))
                    continue
            except RuntimeError:  # the process cannot start another thread
                pass
            connection.close()

    def _answer(self, connection: socket.socket) -> None:
        bell = Bell()
        self._requests[threading.current_thread()] = connection, bell
        try:
            send(connection, self._reply_to_request(connection, bell))
        finally:
            del self._requests[threading.current_thread()]
            connection.close()
            bell.close()

    def _reply_to_request(self, connection: socket.socket, bell: Bell) -> bytes:
        try:
            line = read_line(connection, _TO_ASK_SECONDS)
            if peer(connection)[1] != os.geteuid():
                raise EmitError("that process is another user's")
            request, began = request_of(line), time.monotonic()
            answer = record_for(request, connection, bell)
            is_less = answer.steps < request.steps if request.steps else time.monotonic() - began < request.seconds
            return line_of(replace(answer, ended=self._over.is_set() and is_less))
        except OpspanError as error:
            return line_of(EmitError(f"it ended meanwhile: {error}" if self._over.is_set() else str(error)))
        except Exception as error:  # noqa: BLE001  # the requester gets the error, the program does not
            return line_of(EmitError(f"the recording failed: {type(error).__name__}: {error}"))

    def _end(self) -> None:
        """Ends all recordings at the end of the program, as if their time was over."""
        if self._owner != os.getpid():
            return
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with contextlib.suppress(OSError):  # the folder was removed already
            self._folder.close()
        until = time.monotonic() + _TO_END_SECONDS
        for thread, (_, bell) in list(self._requests.items()):
            with contextlib.suppress(OSError):  # the request has just ended by itself
                bell.ring()
            thread.join(max(until - time.monotonic(), 0))

    def leave_in_fork(self) -> None:
        self._socket.close()
        for connection, bell in list(self._requests.values()):
            connection.close()
            bell.close()


def _short_parent() -> Path | None:
    """Returns None for the usual folder for temporary files, or /tmp if the path of a socket in the usual folder could
    exceed the limit of 107 bytes."""
    return None if len(os.fsencode(tempfile.gettempdir())) < 64 else Path("/tmp")


def _start_thread(run: Callable[[], None]) -> None:
    thread = threading.Thread(target=run, name="opspan", daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OWN_SIGNALS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_child() -> None:
    global _listener
    listener, _listener = _listener, None
    _lock.release()
    if listener is not None:
        listener.leave_in_fork()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
