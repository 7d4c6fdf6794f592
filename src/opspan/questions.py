"""Defines Question. `opspan idle`, `trace.idle()` and `ranks.idle()` all answer the same Question.

    question("idle").rows_of(trace.analysed, Options(by="module"))

Each question is a module of views/ that defines QUESTION. Only a call of `question` imports that module and polars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from opspan.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from opspan.addresses import File
    from opspan.analysis import Analysis
    from opspan.analysis.parts import Parts
    from opspan.tables.window import Steps
    from opspan.views.answer import Answer

_OF_RANGES = ("op", "module", "phase", "step", "function")
# Maps each question to the values of its option `by`, which groups the rows. The first value is the default.
BY: dict[str, tuple[str, ...]] = {
    "table": ("name", "shape", "stack", "module", "step", "phase", "function", "stream", "kernel", "line", "source-op"),
    "idle": (*_OF_RANGES, "device", "stream", "gap"),
    "launches": (*_OF_RANGES, "kernel", "stream", "copy"),
    "waits": (*_OF_RANGES, "why", "call"),
    "path": ("op", "kind", "module", "phase", "step"),
    "memory": ("op", "block", "device"),
    "functions": ("function", "library", "op", "module", "phase", "step", "line", "call", "thread"),
    "flops": ("op", "shape", "module", "phase", "step", "run"),
    "comm": ("kind", "group", "rank", "size", *_OF_RANGES, "call"),
    "diff": ("op", "shape", "module", "phase", "kernel", "place"),
    "steps": (),
    "findings": (),
    "summary": (),
}


INSIDE = ("op", "module", "range", "call")  # the values of the first item of Options.inside


@dataclass(frozen=True)
class Options:
    """The options of all questions. A question ignores options that it does not have."""

    by: str = ""
    files: tuple[File, ...] = ()  # the files as the user typed them, because answers suggest commands with them
    step: Steps | None = None  # first and last number of the steps, or a pattern of the names of ranges that are steps
    peak: tuple[str, ...] = ()
    # Maps names of ops, or kinds of time, to factors. The answer says how long the run would take if the time of each
    # op or kind were multiplied by its factor.
    factors: Mapping[str, float] | None = None
    sort_by: str | None = None  # a column, by opspan's or torch's name
    op: str | None = None  # the name of the ops to show, or a pattern for their names
    inside: tuple[str, str] | None = None  # only samples inside these: a kind of INSIDE, and the name
    idle: bool = False  # whether to count only samples that were taken while a device was idle
    kernels: bool = False  # whether to show rows of kernels and copies, too
    memory: bool = False


@dataclass(frozen=True)
class Question:
    """A question about one trace or many. `parts` computes the partial results of one file, which are small and can be
    added up over files. `rows` and `answer` make the result from the partial results of all files. `rows_of_one` and
    `answer_of_one` make the result for one trace directly, if that is faster or gives more details."""

    name: str
    parts: Callable[[Analysis, Options], Parts]
    rows: Callable[[Parts, Options], pl.DataFrame]
    answer: Callable[[Parts, Options], Answer]
    rows_of_one: Callable[[Analysis, Options], pl.DataFrame] | None = None
    answer_of_one: Callable[[Analysis, Options], Answer] | None = None

    def checked(self, options: Options) -> Options:
        """Returns the options, with the default `by` if none is given. Raises UsageError for unknown values."""
        known = BY[self.name]
        if options.inside is not None and options.inside[0] not in INSIDE:
            raise UsageError(f"samples cannot be inside {options.inside[0]!r}; expected one of {', '.join(INSIDE)}")
        if not known:
            return options
        if options.by and options.by not in known:
            what = "table" if self.name == "table" else "answer"
            raise UsageError(f"there is no {what} by {options.by!r}; expected one of {', '.join(known)}")
        return options if options.by else replace(options, by=known[0])

    def rows_of(self, analysis: Analysis, options: Options) -> pl.DataFrame:
        options = self.checked(options)
        if self.rows_of_one is not None:
            return self.rows_of_one(analysis, options)
        return self.rows(self.parts(analysis, options), options)

    def answer_of(self, analysis: Analysis, options: Options) -> Answer:
        options = self.checked(options)
        if self.answer_of_one is not None:
            return self.answer_of_one(analysis, options)
        return self.answer(self.parts(analysis, options), options)


def needs_two_runs(_parts: Parts, _options: Options) -> NoReturn:
    raise UsageError("a comparison needs two runs, and this is one")


def question(name: str) -> Question:
    result: Question = import_module(f"opspan.views.{name}").QUESTION
    return result
