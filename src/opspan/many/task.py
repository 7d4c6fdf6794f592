"""Defines tasks, which ask questions about some files, and the answers. Both are small, so another machine can run the
tasks.

    answers = answered(Task(files, ReadOptions(), (("idle", Options("op")),)))

Executors run `answered`. This is a top-level function, and its argument and its result can be pickled. So it runs in
any `concurrent.futures.Executor`. An error of a file is returned as a FileFailure, because an exception would not reach
this process unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opspan.addresses import recorded_file
from opspan.dask import absolute
from opspan.errors import OpspanError, ReadError, UsageError
from opspan.questions import Options, question

if TYPE_CHECKING:
    import polars as pl

    from opspan.analysis import Analysis, Coverage
    from opspan.analysis.parts import Part, Parts
    from opspan.tables import Metadata
    from opspan.tables.cycles import RecordingSpan
    from opspan.tables.window import Steps


Request = tuple[str, Options]  # the name of a question, and its options


@dataclass(frozen=True)
class ReadOptions:
    """Arguments of `opspan.load` that say how to read files."""

    source: str | None = None
    strict: bool = False
    between: tuple[int, int] | None = None
    step: Steps | None = None
    most_bytes: int | None = None
    captures: tuple[str, ...] = ()
    compiled: str | None = None

    def with_absolute_paths(self) -> ReadOptions:
        """Returns the same options for processes that may run in other folders."""
        compiled = None if self.compiled is None else absolute(self.compiled)
        return replace(self, captures=tuple(map(absolute, self.captures)), compiled=compiled)


@dataclass(frozen=True)
class Task:
    paths: tuple[str, ...]
    reading: ReadOptions
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class FileAnswer:
    """The answers of one file, with its origin and its issues, but no rows of the trace."""

    path: str
    ranks: tuple[Metadata, ...]
    recorded: tuple[RecordingSpan | None, ...]  # for each rank, which process recorded it, and when
    issues: pl.DataFrame
    coverage: Coverage
    parts: tuple[Parts, ...]  # for each request, the partial results of its answer
    collectives: Part | None  # the collectives, for aligning clocks; None if one of `parts` already has them


@dataclass(frozen=True)
class FileFailure:
    """Says that a file could not be read (`is_file` is true), or that a question makes no sense for the file."""

    path: str
    error: str  # the name of the exception's class in opspan.errors
    message: str
    is_file: bool = True


def answered(task: Task) -> list[FileAnswer | FileFailure]:
    return [_one(path, task) for path in task.paths]


def _one(path: str, task: Task) -> FileAnswer | FileFailure:
    from opspan.analysis.parts import COLLECTIVES, Part
    from opspan.tables.tables import recorded_of

    try:
        analysis = open_files(path, task.reading)
        parts = tuple(question(name).parts(analysis, options) for name, options in task.requests)
        tables = analysis.tables
        own = None
        if not any(COLLECTIVES in one for one in parts):
            own = Part(analysis.own_collectives.drop("range"), times=("start_ns", "end_ns"))
        return FileAnswer(path, tables.ranks, tuple(recorded_of(tables)), tables.issues, analysis.coverage, parts, own)
    except OpspanError as error:
        return FileFailure(path, type(error).__name__, str(error), isinstance(error, ReadError))
    except MemoryError:
        return FileFailure(path, "TooLarge", f"{recorded_file(path)} needs more memory than there is")
    except Exception as error:  # noqa: BLE001  an error of a library; the other files can still be answered
        return FileFailure(
            path, "ReadError", f"{recorded_file(path)} could not be analysed ({type(error).__name__}: {error})"
        )


def open_files(path: str, reading: ReadOptions, *others: str) -> Analysis:
    """Reads files as one trace, as `opspan.load` does, and returns its analysis."""
    from opspan.loading import load

    return load(path, *others, **vars(reading)).analysed


def error_of(failed: FileFailure) -> OpspanError:
    """Returns an exception like the one that was raised in the other process."""
    from opspan import errors

    kind = getattr(errors, failed.error, ReadError)
    is_ours = isinstance(kind, type) and issubclass(kind, OpspanError)
    return kind(failed.message) if is_ours else UsageError(failed.message)
