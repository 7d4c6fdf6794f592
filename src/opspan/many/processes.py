"""Defines an executor whose processes never import a user's program. If a process is killed, only its task is lost.

In the pool of concurrent.futures all tasks would be lost, and the task that was the cause would be unknown.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from opspan.workers import Worker, WorkerError, WorkerExit

T = TypeVar("T")

_Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Processes(Executor):
    """An executor of `count` processes. Each process starts when there is a task for it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot submit to an executor that was shut down")
            self._jobs.put((future, function, arguments, named))
            if len(self._threads) < self.count:
                # A daemon thread does not keep the user's program from ending.
                thread = threading.Thread(target=self._serve, name="opspan.many", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def _serve(self) -> None:
        """Passes tasks to one process. If that process was killed, starts a new one for the next task. Each process has
        a thread in which this function runs."""
        worker: Worker | None = None
        while (job := self._jobs.get()) is not None:
            future, function, arguments, named = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._start()
                result, error = worker.ask((function, arguments, named))
            except (EOFError, OSError) as gone:
                future.set_exception(WorkerExit(worker.why() if worker else f"no process could be started: {gone}"))
                worker = None
            except BaseException as wrong:  # noqa: BLE001  such as an argument that cannot be pickled
                future.set_exception(wrong)
            else:
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(WorkerError(error))
        if worker is not None:
            worker.end()

    def _start(self) -> Worker:
        with self._lock:
            if self._is_over:
                raise EOFError
            self._workers = [worker for worker in self._workers if worker.process.poll() is None]
            self._workers.append(Worker(self.count))
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
        """Kills all processes at once, without waiting for their tasks."""
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
