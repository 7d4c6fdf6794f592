"""Sends tasks to an executor, a few at a time, and yields the answers in the order of the files.

One task reads several small files, because every task costs time. Only as many tasks are submitted as keep the executor
busy, so that few answers take up memory here. If a process is killed (mostly because it took too much memory), each
file of its task is tried once more, in a separate task. If that fails, too, the file counts as unreadable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, wait
from dataclasses import replace

from opspan.addresses import recorded_file
from opspan.many.files import File
from opspan.many.task import FileAnswer, FileFailure, ReadOptions, Request, Task, answered

MOST_FILES, MOST_BYTES = 16, 8 << 20  # the most files and the most bytes of a task
_TURN_S = 0.2
AHEAD = 2  # the most tasks to submit for each process: one that runs, and one that waits

Done = Callable[[int, int], None]  # a function that is called with the number of files and of bytes just read


def ask_files(
    files: Sequence[File],
    reading: ReadOptions,
    requests: Sequence[Request],
    executor: Executor,
    at_once: int,
    done: Done = lambda _files, _bytes: None,
) -> Iterator[FileAnswer | FileFailure]:
    """Yields the answer or the failure of each file. `at_once` is how many tasks the executor runs at once."""
    waiting: deque[tuple[list[File], Task, Future[list[FileAnswer | FileFailure]]]] = deque()
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
    most = max(1, min(MOST_FILES, len(files) // (4 * at_once)))
    some: list[File] = []
    for file in files:
        if some and (len(some) == most or sum(one.size for one in some) + file.size > MOST_BYTES):
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def _result(
    task: Task, future: Future[list[FileAnswer | FileFailure]], executor: Executor
) -> list[FileAnswer | FileFailure]:
    try:
        return _result_of(future)
    except CancelledError:
        raise
    except Exception:  # noqa: BLE001  any executor may be used; `answered` itself raises nothing
        return [_alone(replace(task, paths=(path,)), executor) for path in task.paths]


def _alone(task: Task, executor: Executor) -> FileAnswer | FileFailure:
    try:
        return _result_of(executor.submit(answered, task))[0]
    except CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  as above
        why = str(error) or type(error).__name__
        return FileFailure(task.paths[0], "ReadError", f"{recorded_file(task.paths[0])} could not be read: {why}")


def _result_of(future: Future[list[FileAnswer | FileFailure]]) -> list[FileAnswer | FileFailure]:
    # Once polars has run, its signal handler resumes a wait that Ctrl-C interrupts. So wait only briefly, in a loop:
    # Python handles Ctrl-C between two waits.
    while not wait([future], _TURN_S).done:
        pass
    return future.result()
