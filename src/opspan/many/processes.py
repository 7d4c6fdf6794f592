"""An executor whose processes never import a user's program, and of which one that is ended takes one task with it.

multiprocessing's import the program's own file again, which runs it again where it has no `if __name__ == "__main__"`;
and when one of concurrent.futures' is killed, all tasks are lost and nobody knows whose fault it was.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing.connection import Pipe
from typing import Any, TypeVar

T = TypeVar("T")

_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from opspan.many.worker import main; main(int(sys.argv[1]))"
_Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class WorkerEnded(Exception):
    """The process was ended before it had an answer."""


class WorkerError(Exception):
    """The function raised in its process: only the text comes back."""


class Processes(Executor):
    """As many processes, each begun when there is work for it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot submit to an executor that was shut down")
            self._jobs.put((future, function, arguments, named))
            if len(self._threads) < self.count:
                # A daemon: no thread of ours keeps a program from ending.
                thread = threading.Thread(target=self._serve, name="opspan.many", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def _serve(self) -> None:
        """A thread for each process: it hands jobs to it, and begins another process when one was ended."""
        worker: _Worker | None = None
        while (job := self._jobs.get()) is not None:
            future, function, arguments, named = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._begun()
                result, error = worker.ask((function, arguments, named))
            except (EOFError, OSError) as gone:
                future.set_exception(WorkerEnded(worker.why() if worker else f"no process could be started: {gone}"))
                worker = None
            except BaseException as wrong:  # noqa: BLE001  such as what cannot be pickled
                future.set_exception(wrong)
            else:
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(WorkerError(error))
        if worker is not None:
            worker.end()

    def _begun(self) -> _Worker:
        with self._lock:
            if self._is_over:
                raise EOFError
            self._workers = [worker for worker in self._workers if worker.process.poll() is None]
            self._workers.append(_Worker(self.count))
            return self._workers[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            is_first, self._is_over = not self._is_over, True
            threads = list(self._threads)
        if cancel_futures:
            self._cancel()
        if is_first:
            for _ in threads:
                self._jobs.put(None)
        if wait:
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """End all processes at once, whatever they are at."""
        self.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.kill()
        for thread in self._threads:
            thread.join()

    def _cancel(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if (job := self._jobs.get_nowait()) is not None:
                    job[0].cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.shutdown()
        else:
            self.stop()


class _Worker:
    def __init__(self, count: int) -> None:
        self._pipe, its = Pipe()
        # Threads of its own for its share of the processors: two that both use all of them wait for each other.
        share = max(1, len(os.sched_getaffinity(0)) // count)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [sys.executable, *flags, "-c", _PROGRAM, str(its.fileno()), *filter(None, sys.path)]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env={"POLARS_MAX_THREADS": str(share), **os.environ},
            )
        finally:
            its.close()

    def ask(self, job: tuple[Any, ...]) -> tuple[Any, str | None]:
        self._pipe.send(job)
        answer: tuple[Any, str | None] = self._pipe.recv()
        return answer

    def why(self) -> str:
        """In words, how it was ended."""
        self._pipe.close()
        code = self.process.wait()
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as happens where memory is short" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"

    def end(self) -> None:
        """It ends when the pipe does."""
        self._pipe.close()
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()
