"""Checks a dask.distributed cluster whose workers will read files. Only this module uses dask.

    with cluster("tcp://scheduler:8786", files) as (executor, at_once):
        future = executor.submit(function, argument)

The executor passes tasks to dask's executor. The scheduler decides which worker reads a file, and repeats the tasks of
a worker that dies. Before the first task, this module checks that the scheduler answers and has workers. It also checks
that the workers see the files, and have the same version of opspan. If all workers are gone, this module cancels the
tasks, so that the caller does not wait forever.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from opspan.addresses import Address, file_of
from opspan.errors import ClusterError, MissingPackage, UsageError
from opspan.printable import listed, shortened
from opspan.version import VERSION

PATIENCE_S = 10.0  # seconds to wait until a scheduler answers and has a worker
ABANDONED_S = 30.0  # seconds to wait for a worker if all have died, because they may be restarted
_LOOKS_S = 0.5
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^/\s]+", re.IGNORECASE)
_MOST_LOOKED_AT = 100  # about how many files to check; a worker that sees these files probably sees all files
_LOGGERS = ("distributed", "tornado")

Seen = tuple[str, int]  # the path of a file, and its size in bytes, which is 0 if unknown


def absolute(path: str) -> str:
    """Returns the absolute path, because a worker runs in another folder. Links are not followed."""
    return path if isinstance(file_of(path), Address) else os.path.abspath(path)  # noqa: PTH100


@contextmanager
def cluster(address: str, files: Sequence[Seen]) -> Iterator[tuple[Executor, int]]:
    """Yields the executor of the cluster, and how many tasks it runs at once. Raises ClusterError if the cluster cannot
    be used."""
    with _connected(address) as client:
        at_once = _threads(client, address)
        _check_versions(client, address)
        _check_files(client, files)
        executor = _WatchingExecutor(client)
        try:
            yield executor, at_once
        except CancelledError:
            raise ClusterError(
                f"{address}: {executor.why or 'its scheduler ended, or took the work back'}; start it again"
            ) from None
        finally:
            executor.shutdown()


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    if not _ADDRESS.fullmatch(address):  # given an empty address, dask would start a cluster itself
        raise UsageError(f"{address!r} is no address of a scheduler; expected such as tcp://127.0.0.1:8786")
    distributed = _distributed()
    with ThreadPoolExecutor(1) as thread:  # asyncio may already run in this thread, as in a notebook
        thread.submit(_check_scheduler, address).result()
    try:
        client = distributed.Client(address, timeout=PATIENCE_S, set_as_default=False, name="opspan")
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_answer(address, error) from error
    try:
        yield client
    finally:
        client.close(timeout=PATIENCE_S)


def _distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingPackage("a cluster needs dask.distributed: pip install 'opspan[dask]'") from error


def quiet() -> None:
    """Silences dask's log, because this program reports each error as one line on the same terminal."""
    _distributed()
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _check_scheduler(address: str) -> None:
    """Raises a ClusterError if no scheduler answers. This check comes before making a Client, because a Client waits
    forever if a server that is not a scheduler answers."""
    distributed = _distributed()

    async def identity() -> None:
        async with distributed.rpc(
            address, connection_args=distributed.Security().get_connection_args("client")
        ) as scheduler:
            await scheduler.identity()

    try:
        asyncio.run(asyncio.wait_for(identity(), PATIENCE_S))
    except Exception as error:
        raise _no_answer(address, error) from error


def _no_answer(address: str, error: Exception) -> ClusterError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ClusterError(f"no scheduler of dask answers at {address} within {PATIENCE_S:g} s ({shortened(reason, 200)})")


def _threads(client: Any, address: str) -> int:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_S)
    except TimeoutError as error:
        raise ClusterError(f"the scheduler at {address} has no worker; start some: dask worker {address}") from error
    threads: dict[str, int] = client.nthreads()
    return max(1, sum(threads.values()))


def _check_versions(client: Any, address: str) -> None:
    workers = client.get_versions(packages=["opspan"])["workers"]
    theirs = {worker: about["packages"].get("opspan") for worker, about in workers.items()}
    others = [f"{worker} has {its or 'none'}" for worker, its in theirs.items() if its != VERSION]
    if others:
        raise ClusterError(
            f"workers of {address} need opspan {VERSION}, which is running here: {listed(others, 3)}; install it there"
        )


def _check_files(client: Any, files: Sequence[Seen]) -> None:
    here = [(path, size) for path, size in files if not isinstance(file_of(path), Address)]
    some = here[:: max(1, len(here) // _MOST_LOOKED_AT)]
    answers: dict[str, str | Exception | None] = client.run(unseen, some, on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, Exception):
            raise ClusterError(f"the worker {worker} cannot run this opspan ({type(answer).__name__}: {answer})")
        if answer is not None:
            raise ClusterError(
                f"the worker {worker} {answer}; expected the same files there: use a folder that all machines share, "
                "or addresses such as s3://"
            )


def unseen(files: Sequence[Seen]) -> str | None:
    """Runs in a worker. Returns the first difference between these files and the files that the worker sees."""
    for path, size in files:
        file = Path(path)
        try:
            its_size = file.stat().st_size
        except OSError as error:
            return f"does not see {path} ({error.strerror})"
        if size and file.is_file() and its_size != size:
            return f"has another {path}, of {its_size:,} bytes and not {size:,} as here"
    return None


class _WatchingExecutor(Executor):
    """Passes tasks to dask's executor. If there is no worker for ABANDONED_S seconds, or no answer from the scheduler,
    cancels all tasks. Otherwise the tasks would wait forever."""

    def __init__(self, client: Any) -> None:
        self.why: str | None = None
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, name="opspan.dask", daemon=True).start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = self._executor.submit(function, *arguments, **named)
        self._futures.add(future)
        return future

    def _watch(self) -> None:
        seen = time.monotonic()
        while not self._is_over.wait(_LOOKS_S):
            problem = self._problem()
            if problem is None:
                seen = time.monotonic()
            elif time.monotonic() - seen > ABANDONED_S:
                self.why = f"{problem}, for {ABANDONED_S:g} s"
                self._cancel()
                return

    def _problem(self) -> str | None:
        try:
            return None if self._client.nthreads() else "no worker is left"
        except (OSError, RuntimeError, TimeoutError):
            return "its scheduler does not answer any more"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_over.set()
        self._cancel()

    def _cancel(self) -> None:
        for future in list(self._futures):
            future.cancel()
