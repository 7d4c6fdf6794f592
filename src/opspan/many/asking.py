"""Tasks to an executor, a few at a time, and what comes back in the order of the files.

Small files go together, as a task has a price. No more tasks are under way than keep the executor at work, so what
waits here for its turn is small, too. A task whose process was ended (it took too much memory, as a rule) is asked
again, each of its files alone, once: then it is a file that could not be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, wait
from dataclasses import replace

from opspan.addresses import file_said
from opspan.many.files import File
from opspan.many.task import Answered, Failed, Reading, Request, Task, answered

MOST_FILES, MOST_BYTES = 16, 8 << 20  # of a task
_LOOKS_S = 0.2
AHEAD = 2  # tasks for each process: one that it is at, and one that waits

Done = Callable[[int, int], None]  # files and bytes


def asked(
    files: Sequence[File],
    reading: Reading,
    requests: Sequence[Request],
    executor: Executor,
    at_once: int,
    done: Done = lambda _files, _bytes: None,
) -> Iterator[Answered | Failed]:
    """`at_once`: how many tasks the executor runs side by side."""
    waiting: deque[tuple[list[File], Task, Future[list[Answered | Failed]]]] = deque()
    rest = iter(_together(files, at_once))
    try:
        while True:
            while len(waiting) < AHEAD * at_once and (some := next(rest, None)) is not None:
                task = Task(tuple(file.path for file in some), reading, tuple(requests))
                waiting.append((some, task, executor.submit(answered, task)))
            if not waiting:
                return
            some, task, future = waiting.popleft()
            yield from _result(task, future, executor)
            done(len(some), sum(file.size for file in some))
    finally:
        for _, _, future in waiting:
            future.cancel()


def _together(files: Sequence[File], at_once: int) -> Iterator[list[File]]:
    """The files of each task, as many as leave something to do for all processes."""
    most = max(1, min(MOST_FILES, len(files) // (4 * at_once)))
    some: list[File] = []
    for file in files:
        if some and (len(some) == most or sum(one.size for one in some) + file.size > MOST_BYTES):
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def _result(task: Task, future: Future[list[Answered | Failed]], executor: Executor) -> list[Answered | Failed]:
    try:
        return _waited_for(future)
    except CancelledError:
        raise
    except Exception:  # noqa: BLE001  of the executor, whichever that is: `answered` raises none
        return [_alone(replace(task, files=(file,)), executor) for file in task.files]


def _alone(task: Task, executor: Executor) -> Answered | Failed:
    try:
        return _waited_for(executor.submit(answered, task))[0]
    except CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  as above
        why = str(error) or type(error).__name__
        return Failed(task.files[0], "ReadError", f"{file_said(task.files[0])} could not be read: {why}")


def _waited_for(future: Future[list[Answered | Failed]]) -> list[Answered | Failed]:
    # Where polars has been at work, a signal ends no wait: its handler begins them again. Ctrl-C is seen between two.
    while not wait([future], _LOOKS_S).done:
        pass
    return future.result()
