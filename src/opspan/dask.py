"""Files read by the workers of a cluster of dask.distributed, which alone is known here.

    with cluster("tcp://scheduler:8786", files) as (executor, at_once):
        future = executor.submit(function, argument)

What the scheduler does (who works, what is done again when a worker died, what is given up) is its own affair. Here is
only what has to be asked of it before: is it there, has it workers, have these the same opspan, and do they see the
files; and, while work is under way, whether anybody is left to do it.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opspan.addresses import Address, file_of
from opspan.errors import ClusterError, MissingPackage, UsageError
from opspan.printable import listed, shortened

PATIENCE_S = 10.0  # until a scheduler answers, and has a worker
ABANDONED_S = 30.0  # without any worker: those that died may have been started again by then
_LOOKS_S = 0.5
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^/\s]+", re.IGNORECASE)
_MOST_LOOKED_AT = 100  # files of many: where a worker sees none of these, it sees no other

Seen = tuple[str, int]  # path, and bytes or 0


def absolute(path: str) -> str:
    """As it is called everywhere: a worker has a folder of its own."""
    return path if isinstance(file_of(path), Address) else os.path.abspath(path)  # noqa: PTH100  of links none is followed


@contextmanager
def cluster(address: str, files: Sequence[Seen]) -> Iterator[tuple[Executor, int]]:
    """Who does work there, and how many things at once. ClusterError where that cannot be."""
    with _connected(address) as client:
        at_once = _threads(client, address)
        _check_versions(client, address)
        _check_files(client, files)
        executor = _Watched(client)
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
    if not _ADDRESS.fullmatch(address):  # without one, dask would start a cluster
        raise UsageError(f"{address!r} is no address of a scheduler; expected such as tcp://127.0.0.1:8786")
    distributed = _distributed()
    with ThreadPoolExecutor(1) as thread:  # here asyncio may be at work, as in a notebook
        thread.submit(_ask, address).result()
    try:
        client = distributed.Client(address, timeout=PATIENCE_S, set_as_default=False, name="opspan")
    except (OSError, ValueError, RuntimeError) as error:
        raise _nobody(address, error) from error
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
    """For a program whose errors are one line: dask logs to the same terminal."""
    _distributed()
    theirs = ("distributed", "tornado")
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in theirs]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _ask(address: str) -> None:
    """ClusterError where no scheduler answers. Client would wait for ever for what takes connections and is none."""
    distributed = _distributed()

    async def identity() -> None:
        async with distributed.rpc(
            address, connection_args=distributed.Security().get_connection_args("client")
        ) as scheduler:
            await scheduler.identity()

    try:
        asyncio.run(asyncio.wait_for(identity(), PATIENCE_S))
    except Exception as error:
        raise _nobody(address, error) from error


def _nobody(address: str, error: Exception) -> ClusterError:
    said = " ".join(str(error).split()) or type(error).__name__
    return ClusterError(f"no scheduler of dask answers at {address} within {PATIENCE_S:g} s ({shortened(said, 200)})")


def _threads(client: Any, address: str) -> int:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_S)
    except TimeoutError as error:
        raise ClusterError(f"the scheduler at {address} has no worker; start some: dask worker {address}") from error
    threads: dict[str, int] = client.nthreads()
    return max(1, sum(threads.values()))


def _check_versions(client: Any, address: str) -> None:
    ours = version("opspan")
    workers = client.get_versions(packages=["opspan"])["workers"]
    theirs = {worker: about["packages"].get("opspan") for worker, about in workers.items()}
    others = [f"{worker} has {found or 'none'}" for worker, found in theirs.items() if found != ours]
    if others:
        raise ClusterError(
            f"workers of {address} need opspan {ours}, which is running here: {listed(others, 3)}; install it there"
        )


def _check_files(client: Any, files: Sequence[Seen]) -> None:
    here = [(path, size) for path, size in files if not isinstance(file_of(path), Address)]
    some = here[:: max(1, len(here) // _MOST_LOOKED_AT)]
    said: dict[str, str | Exception | None] = client.run(unseen, some, on_error="return")
    for worker, what in said.items():
        if isinstance(what, Exception):
            raise ClusterError(f"the worker {worker} cannot run this opspan ({type(what).__name__}: {what})")
        if what is not None:
            raise ClusterError(
                f"the worker {worker} {what}; expected the same files there: use a folder that all machines share, or "
                "addresses such as s3://"
            )


def unseen(files: Sequence[Seen]) -> str | None:
    """Runs in a worker: what it sees otherwise."""
    for name, size in files:
        path = Path(name)
        try:
            found = path.stat().st_size
        except OSError as error:
            return f"does not see {name} ({error.strerror})"
        if size and path.is_file() and found != size:
            return f"has another {name}, of {found:,} bytes and not {size:,} as here"
    return None


class _Watched(Executor):
    """Dask's executor. What waits for it does not wait for ever where no worker is left."""

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
            what = self._missing()
            if what is None:
                seen = time.monotonic()
            elif time.monotonic() - seen > ABANDONED_S:
                self.why = f"{what}, for {ABANDONED_S:g} s"
                for future in list(self._futures):
                    future.cancel()
                return

    def _missing(self) -> str | None:
        try:
            return None if self._client.nthreads() else "no worker is left"
        except (OSError, RuntimeError, TimeoutError):
            return "its scheduler does not answer any more"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_over.set()
        for future in list(self._futures):
            future.cancel()
