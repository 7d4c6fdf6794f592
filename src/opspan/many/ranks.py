"""Defines Ranks, which load_many returns. Ranks answers like `Trace`, for any number of files, but needs memory for
only a few files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from opspan import forked, workers
from opspan.dask import absolute, cluster
from opspan.errors import ReadError, UsageError
from opspan.loading import paths_of
from opspan.many import FEW
from opspan.many.asking import Done, ask_files
from opspan.many.files import File, files_of
from opspan.many.processes import Processes
from opspan.many.task import FileAnswer, FileFailure, ReadOptions, Request, Task, answered, error_of, open_files
from opspan.many.together import AnswerSum, Whole
from opspan.printable import plural
from opspan.questions import Options, question
from opspan.tables.ranks import have_other_cycles
from opspan.trace import Trace

if TYPE_CHECKING:
    from opspan.analysis import Coverage
    from opspan.analysis.figures import Figures
    from opspan.analysis.parts import Parts
    from opspan.loading import PathOrPaths
    from opspan.tables import Metadata, Tables
    from opspan.tables.window import Steps
    from opspan.views.table import Table

SMALL_BYTES = 32 << 20  # the most bytes that can be read in less time than a process takes to start
_NO_STEP = ("NoSuchStep", "NoNumberedSteps")
_AT_ONCE = 16  # assumed number of tasks that an executor runs at once, if the executor does not tell


def load_many(
    *paths: str | os.PathLike[str],
    source: str | None = None,
    strict: bool = False,
    between: tuple[int, int] | None = None,
    step: int | tuple[int, int] | str | None = None,
    cycle: int | None = None,
    most_bytes: int | None = None,
    captures: PathOrPaths = (),
    compiled: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    executor: Executor | None = None,
    dask: str | None = None,
    progress: Done | None = None,
) -> Ranks:
    """Returns the traces of many ranks, given as files, folders of files, or patterns such as "run/*.sqlite".

    `opspan.load` keeps all files in memory. The result of `load_many` keeps none. It reads the files one by one for
    each answer. A file that cannot be read is an issue.

    Args:
        paths: files, folders, patterns or addresses.
        source: as in `opspan.load`.
        strict: as in `opspan.load`.
        between: as in `opspan.load`.
        step: as in `opspan.load`.
        cycle: as in `opspan.load`.
        most_bytes: as in `opspan.load`.
        captures: as in `opspan.load`.
        compiled: as in `opspan.load`.
        processes: how many processes read at the same time; by default as many as there are processors. 1 means that
            this process reads the files.
        executor: an executor of concurrent.futures that reads the files instead of these processes.
        dask: the address of a scheduler whose workers read the files (docs/remote.md).
        progress: a function that is called with the number of files and of bytes that were just read.
    """
    if not paths:
        raise UsageError("nothing to load; expected a folder, a pattern, or the paths of traces")
    if processes is not None and processes < 1:
        raise UsageError(f"{processes} processes can read nothing; expected 1 or more")
    file_list = files_of(paths, source)
    steps = (step, step) if isinstance(step, int) else step
    logs = None if compiled is None else os.fspath(compiled)
    reading = ReadOptions(source, strict, between, steps, most_bytes, paths_of(captures), logs)
    return Ranks(
        file_list.files,
        reading,
        cycle=cycle,
        processes=processes,
        executor=executor,
        dask=dask,
        progress=progress,
        skipped=file_list.skipped,
    )


@forked.methods_elsewhere
class Ranks:
    """Many files as one run, with the methods of `Trace`. Each method that returns an answer reads the files again."""

    def __init__(
        self,
        files: Sequence[File],
        reading: ReadOptions,
        *,
        cycle: int | None = None,
        processes: int | None = None,
        executor: Executor | None = None,
        dask: str | None = None,
        progress: Done | None = None,
        skipped: int = 0,
    ) -> None:
        if dask is not None and (executor is not None or processes is not None):
            raise UsageError("who reads the files was said twice; expected one of dask, executor and processes")
        self._files = list(files) if dask is None else [file._replace(path=absolute(file.path)) for file in files]
        # The cycle to read, or None to read all of `_files`. It becomes None once `_files` has only the cycle's files.
        self._cycle = cycle
        self._dask = dask
        self._reading = reading.with_absolute_paths()
        self._processes = processes
        self._executor = executor
        self._progress: Done = progress or _tell_nobody
        self._skipped = skipped
        self._whole: Whole | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to pickle. Leaves out `progress`, which cannot be called from another process."""
        return {**vars(self), "_progress": _tell_nobody}

    # -- files and ranks

    @property
    def files(self) -> list[str]:
        """The paths of the files that are read."""
        return [file.path for file in self._files]

    @property
    def whole(self) -> Whole:
        """Everything that is known about all files together: metadata, issues and coverage."""
        if self._whole is None:
            self.ask()
        assert self._whole is not None  # noqa: S101  it was set by the call above
        return self._whole

    @property
    def ranks(self) -> tuple[Metadata, ...]:
        """The metadata of each rank, which say where the rank comes from, in the order of the ranks' numbers."""
        return self.whole.tables.ranks

    @property
    def coverage(self) -> Coverage:
        """Numbers that say how much of all files together could be attributed, as in `Trace.coverage`."""
        return self.whole.coverage

    @property
    def issues(self) -> pl.DataFrame:
        """Everything that readers skipped or repaired, as in `Trace.issues`."""
        return self.whole.tables.issues

    def open(self, rank: int) -> Trace:
        """Returns the trace of one rank, as `opspan.load` gives it. In this trace the rank's number is 0."""
        metadata = self.ranks
        if not 0 <= rank < len(metadata):
            raise UsageError(f"there is no rank {rank}; expected one from 0 to {len(metadata) - 1}")
        first, *others = self.whole.paths[rank]
        analysis = open_files(first, self._reading, *others)
        trace = Trace.of(analysis.tables)
        trace.analysed = analysis
        return trace

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        size = sum(file.size for file in self._files)
        return f"Ranks({plural(len(self._files), 'file')}, {size / 1e6:,.1f} MB)"

    # -- answers

    def table(
        self,
        by: str = "name",
        *,
        sort_by: str | None = None,
        op: str | None = None,
        kernels: bool = False,
        memory: bool = False,
        step: str | None = None,
    ) -> Table:
        """The same as `Trace.table`."""
        from opspan.views.table import QUESTION, answer

        options = QUESTION.checked(Options(by, step=step, sort_by=sort_by, op=op, kernels=kernels, memory=memory))
        return answer(self.ask(("table", options))[0], options)

    def summary(self) -> pl.DataFrame:
        """Returns one row that says what the run is and where its time went, like `opspan summary`."""
        return self._rows("summary", Options())

    def steps(self, name: str | None = None) -> pl.DataFrame:
        """The same as `Trace.steps`."""
        return self._rows("steps", Options(step=name))

    def idle(self, by: str = "op") -> pl.DataFrame:
        """The same as `Trace.idle`."""
        return self._rows("idle", Options(by))

    def sampled_functions(
        self, by: str = "function", *, inside: tuple[str, str] | None = None, idle: bool = False
    ) -> pl.DataFrame:
        """The same as `Trace.sampled_functions`."""
        return self._rows("functions", Options(by, inside=inside, idle=idle))

    def launches(self, by: str = "op") -> pl.DataFrame:
        """The same as `Trace.launches`. A median of more than 100,000 different values is computed from the first three
        digits of each value.
        """
        return self._rows("launches", Options(by))

    def waits(self, by: str = "op") -> pl.DataFrame:
        """The same as `Trace.waits`."""
        return self._rows("waits", Options(by))

    def flops(self, by: str = "op", *, peak: Sequence[str] = ()) -> pl.DataFrame:
        """The same as `Trace.flops`."""
        from opspan.analysis.costs import registered_ops

        if (known := registered_ops()) and self._processes != 1:
            raise UsageError(
                f"the formula of {known[0]} is known to this program alone, and others read the files; expected "
                "processes=1"
            )
        return self._rows("flops", Options(by, peak=tuple(peak)))

    def path(self, by: str = "op", what_if: Mapping[str, float] | None = None) -> pl.DataFrame:
        """The same as `Trace.path`."""
        return self._rows("path", Options(by, factors=dict(what_if) if what_if else None))

    def memory_use(self, by: str = "op") -> pl.DataFrame:
        """The same as `Trace.memory_use`."""
        return self._rows("memory", Options(by))

    def comm(self, by: str = "kind") -> pl.DataFrame:
        """The same as `Trace.comm`."""
        return self._rows("comm", Options(by))

    def findings(self) -> pl.DataFrame:
        """The same as `Trace.findings`. Rules that compare ranks look at all ranks. The other rules look at each rank,
        and report the rank with the largest problem.
        """
        return self._rows("findings", Options())

    def compare(self, other: Ranks | Tables, by: str = "op") -> pl.DataFrame:
        """Returns the differences between this run and another, as `opspan diff` does."""
        from opspan.analysis.compare import compared
        from opspan.views.diff import figures_of

        after = other.figures(by) if isinstance(other, Ranks) else figures_of(Trace.of(other).analysed, by)
        return compared(self.figures(by), after)

    def figures(self, by: str = "op", step: Steps | None = None, progress: Done | None = None) -> Figures:
        """Returns the numbers of the run that `compare` needs. If `step` is given, counts only these steps."""
        from opspan.analysis.figures import together

        return together(self.ask(("diff", Options(by, step=step)), progress=progress)[0], by)

    # -- reading

    def _rows(self, name: str, options: Options) -> pl.DataFrame:
        asking = question(name)
        return asking.rows(self.ask((name, options))[0], asking.checked(options))

    def ask(self, *requests: Request, progress: Done | None = None) -> list[Parts]:
        """Returns, for each request, the partial results of the answer, added up over all files."""
        # Tasks do not need the names of files, which only the sentences of an answer mention.
        requests = tuple((name, replace(question(name).checked(options), files=())) for name, options in requests)
        if self._cycle is not None:
            whole = replace(self._reading, between=None, step=None)
            wanted = self._sum((), whole, progress)[0].of_cycle(self._cycle)
            self._files = [file for file in self._files if file.path in wanted]
            self._cycle = None
        sums, failed = self._sum(requests, self._reading, progress)
        self._whole, parts = sums.whole(failed)
        return parts

    def _sum(
        self, requests: Sequence[Request], reading: ReadOptions, progress: Done | None
    ) -> tuple[AnswerSum, list[FileFailure]]:
        sums = AnswerSum(len(requests), self._skipped)
        failed: list[FileFailure] = []
        without: list[FileFailure] = []  # files that do not have the requested steps
        with self._running() as (executor, at_once):
            results = ask_files(self._files, reading, requests, executor, at_once, progress or self._progress)
            for result in results:
                if isinstance(result, FileAnswer):
                    sums.add(result)
                elif result.error in _NO_STEP:
                    without.append(result)
                elif not result.is_file or reading.strict:
                    raise error_of(result)
                else:
                    failed.append(result)
        for one in without:
            if not sums.count or not self._has_other_cycle(one.path, sums):
                raise error_of(one)
        if not sums.count:
            if len(failed) == 1:
                raise error_of(failed[0])
            raise ReadError(f"none of the {len(failed):,} files could be read; the first: {failed[0].message}")
        return sums, failed

    def _has_other_cycle(self, path: str, sums: AnswerSum) -> bool:
        """Returns whether another file has another cycle of the same process. In this case a missing step is not an
        error, because the other file may have the step."""
        (head,) = answered(Task((path,), replace(self._reading, between=None, step=None), ()))
        if isinstance(head, FileFailure):
            raise error_of(head)
        return have_other_cycles(list(zip(head.ranks, head.recorded, strict=True)), sums.recorded)

    @contextmanager
    def _running(self) -> Iterator[tuple[Executor, int]]:
        if self._dask is not None:
            with cluster(self._dask, self._files) as executor:
                yield executor
            return
        if self._executor is not None:
            yield self._executor, self._processes or getattr(self._executor, "_max_workers", None) or _AT_ONCE
            return
        count = min(self._processes or _processors(self._files), len(self._files))
        if count == 1:
            yield _Here(), 1
            return
        with Processes(count) as pool:
            yield pool, count


def _tell_nobody(_files: int, _bytes: int) -> None:
    pass


def _processors(files: Sequence[File]) -> int:
    if not workers.has_python() or (len(files) <= FEW and sum(file.size for file in files) <= SMALL_BYTES):
        return 1
    return len(os.sched_getaffinity(0))


class _Here(Executor):
    """An executor that runs each task in this process when it is submitted."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        return future
