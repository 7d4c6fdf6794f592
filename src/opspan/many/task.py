"""What is asked of some files, and what each of them answers: small, and the same on every machine.

    answers = answered(Task(files, Reading(), (("idle", Options("op")),)))

`answered` is what executors run. It lies at the top of this module and takes and gives what pickle knows, so it runs
in any `concurrent.futures.Executor`. What is wrong with a file is a Failed: no exception goes from process to process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from opspan.addresses import file_said
from opspan.errors import OpspanError, ReadError, UsageError
from opspan.questions import Options, question

if TYPE_CHECKING:
    import polars as pl

    from opspan.analysis import Analysis, Coverage
    from opspan.analysis.parts import Part, Parts
    from opspan.tables import Metadata
    from opspan.tables.cycles import Recorded
    from opspan.tables.window import Steps


Request = tuple[str, Options]  # the name of a question, and what it is asked with


@dataclass(frozen=True)
class Reading:
    """How files are read: what `opspan.load` takes."""

    source: str | None = None
    strict: bool = False
    between: tuple[int, int] | None = None
    step: Steps | None = None
    most_bytes: int | None = None


@dataclass(frozen=True)
class Task:
    files: tuple[str, ...]
    reading: Reading
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Answered:
    """Holds the answers of one file, where it came from and what is wrong with it, and no rows of the trace."""

    file: str
    ranks: tuple[Metadata, ...]
    recorded: tuple[Recorded | None, ...]  # when each was recorded, and by whom
    issues: pl.DataFrame
    coverage: Coverage
    parts: tuple[Parts, ...]  # of each request
    collectives: Part | None  # of which all ranks are done at the same time; None: a part has them


@dataclass(frozen=True)
class Failed:
    """A file that could not be read (`is_file`), or a question that makes no sense for it."""

    file: str
    error: str  # name of the class in opspan.errors
    message: str
    is_file: bool = True


def answered(task: Task) -> list[Answered | Failed]:
    return [_one(file, task) for file in task.files]


def _one(file: str, task: Task) -> Answered | Failed:
    from opspan.analysis.parts import COLLECTIVES, Part
    from opspan.tables.tables import recorded_of

    try:
        analysis = opened(file, task.reading)
        parts = tuple(question(name).parts(analysis, options) for name, options in task.requests)
        tables = analysis.tables
        own = None
        if not any(COLLECTIVES in one for one in parts):
            own = Part(analysis.own_collectives.drop("range"), times=("start_ns", "end_ns"))
        return Answered(file, tables.ranks, tuple(recorded_of(tables)), tables.issues, analysis.coverage, parts, own)
    except OpspanError as error:
        return Failed(file, type(error).__name__, str(error), isinstance(error, ReadError))
    except MemoryError:
        return Failed(file, "TooLarge", f"{file_said(file)} needs more memory than there is")
    except Exception as error:  # noqa: BLE001  of a library: the answer is about the other files, and says so
        return Failed(file, "ReadError", f"{file_said(file)} could not be analysed ({type(error).__name__}: {error})")


def opened(file: str, reading: Reading, *others: str) -> Analysis:
    """Files as `opspan.load` reads them."""
    from opspan.loading import load

    return load(file, *others, **vars(reading)).analysed


def raised(failed: Failed) -> OpspanError:
    """The error that it was, in this process."""
    from opspan import errors

    kind = getattr(errors, failed.error, ReadError)
    is_ours = isinstance(kind, type) and issubclass(kind, OpspanError)
    return kind(failed.message) if is_ours else UsageError(failed.message)
