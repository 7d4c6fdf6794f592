"""Defines what the verbs that read traces share: the FILE arguments, the options that choose what to read, and loading
with a progress bar."""

from __future__ import annotations

import glob
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from opspan.addresses import Address, file_of
from opspan.errors import UsageError
from opspan.files import exists, is_folder
from opspan.printable import plural

if TYPE_CHECKING:
    from opspan.addresses import File
    from opspan.analysis import Analysis
    from opspan.many.ranks import Ranks
    from opspan.tables import Tables
    from opspan.tables.window import Steps

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE_S = 1.0  # the progress bar appears after this many seconds
_MOST_BYTES = "opspan.most_bytes"  # the key in click's `ctx.meta` under which --most-fetched stores its value
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


class _InputPath(click.Path):
    def convert(self, path: Any, _parameter: click.Parameter | None, ctx: click.Context | None) -> File:
        return file_of(path, None if ctx is None else ctx.meta.get(_MOST_BYTES))


def _size(value: str) -> int:
    size = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([kmgt]?)b?", value.strip().lower())
    if size is None:
        raise click.BadParameter(f"{value!r} is not a size; expected a number and a unit, such as 500MB or 40GB")
    return round(float(size[1]) * _SIZES[size[2]])


FILE_TO_READ = _InputPath()  # the type of an argument that is a file of this machine or an address


def _rows() -> int:
    """Returns how many rows the readers have read, or 0 if they are not imported yet."""
    progress = sys.modules.get("opspan.formats.progress")
    return progress.rows() if progress else 0


def _fetching(function: F) -> F:
    """Adds the option --most-fetched, the most bytes to fetch from an address. It is parsed before the FILE arguments,
    which need its value."""

    def keep(ctx: click.Context, _parameter: click.Parameter, size: str | None) -> None:
        if size is not None:
            ctx.meta[_MOST_BYTES] = _size(size)

    return click.option(
        "--most-fetched",
        metavar="SIZE",
        is_eager=True,
        expose_value=False,
        callback=keep,
        help="Fetch at most this much of a FILE that is an address: `500MB`, `40GB`.  [default: 16 GiB]",
    )(function)


def trace_files(function: F) -> F:
    """Adds the arguments FILE... (files and addresses), and the option --most-fetched, which limits what is fetched."""
    return click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE_TO_READ)(_fetching(function))


def two_files(function: F) -> F:
    # The verb itself checks the number of files, because click would call a third file an unexpected extra argument.
    return click.argument("files", metavar="A B", nargs=-1, required=True, type=FILE_TO_READ)(_fetching(function))


class Progress:
    """A progress bar on standard error, which appears if reading takes long and standard error is a terminal. It shows
    the current step, and how many rows the step has read."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = -1
        self._doing = ""
        self._rows_before = 0
        self._bytes = 0
        self._bar: Any = None
        self._lock = threading.Lock()
        # `_show` imports rich. Most traces are read before the bar appears, and then rich is not imported.
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True

    def step(self, doing: str) -> None:
        with self._lock:
            self._done, self._doing, self._rows_before = self._done + 1, doing, _rows()
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=self._done, description=doing)

    def done(self, count: int, size: int) -> None:
        """Counts files and bytes that were just read. It is called only if many files are read one by one."""
        with self._lock:
            self._done, self._bytes = self._done + count, self._bytes + size
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=self._done)

    def read(self) -> str:
        """Returns how much was read: the rows of this step ('1,500,000 rows') or, for many files, the bytes ('12 MB').
        While an export by nsys or a download runs, returns a text about it."""
        from opspan.formats import progress

        if self._bytes:
            return f"{self._bytes / 1e6:,.0f} MB"
        count = progress.rows() - self._rows_before
        return progress.waiting_for() or (plural(count, "row") if count else "")

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.text import Text

        progress = self

        class Rows(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(progress.read())

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), Rows())
        bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        with self._lock:
            bar.add_task(self._doing, total=self._steps, completed=self._done)
            bar.start()
            self._bar = bar

    def __enter__(self) -> Progress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()


def in_processes(function: F) -> F:
    """Adds the options --processes and --dask. They say how many processes, or which dask workers, read the files."""
    dask = click.option(
        "--dask",
        metavar="ADDRESS",
        help="Have the workers of this dask.distributed scheduler read the files: `tcp://host:8786`. They must see the "
        "same files, and have the same opspan.",
    )
    processes = click.option(
        "--processes",
        metavar="N",
        type=click.IntRange(min=1),
        help="Analyse each file by itself, N at once. A folder, a pattern and more than four files are always read "
        "so.  [default: as many as there are processors]",
    )
    return processes(dask(function))


def all_at_once(function: F) -> F:
    """Makes a verb that needs the complete trace reject --processes and --dask with a reason. click itself would only
    say that there is no such option."""

    def refuse(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise UsageError(
                f"`opspan {ctx.info_name}` needs all of a trace at once and reads it here: leave out --processes and "
                "--dask, and name fewer files if they are too many"
            )

    return click.option("--processes", "--dask", hidden=True, expose_value=False, callback=refuse)(function)


@dataclass(frozen=True)
class PartToRead:
    """The part of the trace to read, and further files to read (`captures` and `compiled`)."""

    between: tuple[str, str] | None = None
    step: str | None = None
    cycle: int | None = None
    captures: tuple[Path, ...] = ()
    compiled: Path | None = None


def how_to_read(function: F) -> F:
    """Adds the options that choose the part of the trace to read, and further files. The function gets the values of
    these options as `reading`."""

    @wraps(function)
    def run(
        between: tuple[str, str] | None,
        step: str | None,
        cycle: int | None,
        captures: tuple[Path, ...],
        compiled: Path | None,
        **more: Any,
    ) -> Any:
        return function(reading=PartToRead(between, step, cycle, captures, compiled), **more)

    compiled = click.option(
        "--compiled",
        metavar="PATH",
        type=click.Path(path_type=Path),
        help="What torch.compile wrote about its kernels: a folder of TORCH_TRACE=FOLDER or of TORCH_COMPILE_DEBUG=1, "
        "or a file in it. It gives compiled kernels their source lines, for --by line, and says what was compiled "
        "again.",
    )
    captures = click.option(
        "--captures",
        metavar="PATH",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Traces of the capture of CUDA graphs, or a folder of them: their ops are given to the kernels of graphs "
        "that are launched again. A folder `capture_traces` beside FILE is read without this option.",
    )
    cycle = click.option(
        "--cycle",
        metavar="N",
        type=click.IntRange(min=1),
        help="Read only the Nth cycle of each process that wrote several files one after the other, as torch's "
        "`schedule` with `repeat` does.",
    )
    between = click.option(
        "--between",
        nargs=2,
        metavar="START END",
        help="Read only what overlaps this time, counted from the start of the trace: `1.5s 2s`, `200ms 1min`.",
    )
    step = click.option(
        "--step",
        "--steps",
        "step",
        metavar="N|A:B|NAME",
        help="Read only what overlaps these steps, and what they launched. N, or A:B (A-B is the same) for all from A "
        "to B, both included, are the numbers of ranges ProfilerStep#N or, without such ranges, the numbers that "
        "`opspan steps` prints. With NAME, all ranges of that name are the steps (* stands for any text).",
    )
    return cast("F", between(step(cycle(captures(compiled(run))))))


def load(
    files: Sequence[File],
    progress: Progress,
    reading: PartToRead = PartToRead(),
    drop_columns: Callable[[Tables], Tables] | None = None,
    *,
    named: Collection[File],
) -> Analysis:
    """Reads the files as one trace. Each file is one step of `progress`. `drop_columns` drops columns that the verb
    does not need. `named` are the files that the user named. If one of these cannot be read, raises an error. If a file
    from a folder or a pattern cannot be read, adds an issue; raises an error only if no file can be read."""
    from opspan.analysis import Analysis
    from opspan.loading import read_all, window_of

    def announced() -> Iterator[File]:
        for file in files:
            progress.step(f"reading {file.name!r}")
            yield file

    tables, iterations = read_all(
        announced(),
        None,
        window_of(_times(reading.between), steps_of(reading.step)),
        drop_columns,
        reading.cycle,
        unnamed={*files} - {*named},
        captures=reading.captures,
        compiled=reading.compiled,
    )
    return Analysis(tables, iterations=iterations)


def _times(between: tuple[str, str] | None) -> tuple[int, int] | None:
    if between is None:
        return None
    from opspan.tables.window import parsed_time_ns

    return parsed_time_ns(between[0]), parsed_time_ns(between[1])


def steps_of(step: str | None) -> Steps | None:
    if step is None:
        return None
    from opspan.tables.window import parsed_steps

    return parsed_steps(step)


def is_several(file: File) -> bool:
    """Returns whether the path means several files: it is a pattern, or a folder that is not a trace itself."""
    if isinstance(file, Address):
        return file.is_several
    from opspan.readers import trace_source

    return (not exists(file) and glob.has_magic(str(file))) or (is_folder(file) and trace_source(file) is None)


def expanded(files: Sequence[File]) -> tuple[File, ...]:
    """Replaces folders and patterns by their files, for a verb that needs the complete trace at once."""
    if not any(map(is_several, files)):
        return tuple(files)
    from opspan.many.files import files_of

    most = _most_fetched(files)
    return tuple(file_of(file.path, most) for file in files_of(files).files)


def _most_fetched(files: Sequence[File]) -> int | None:
    """Returns the value of --most-fetched, which each address stores, or None if no file is an address."""
    return next((file.most_bytes for file in files if isinstance(file, Address)), None)


def many(files: Sequence[File], reading: PartToRead, processes: int | None, dask: str | None = None) -> Ranks | None:
    """Returns Ranks, which analyses the files one by one, or None if the files are few enough to read as one trace."""
    from opspan.many import FEW

    if processes is None and dask is None and len(files) <= FEW and not any(map(is_several, files)):
        return None
    from opspan.many.files import files_of
    from opspan.many.ranks import Ranks
    from opspan.many.task import ReadOptions

    if dask is not None:
        from opspan.dask import quiet

        quiet()
    file_list = files_of(files)
    options = ReadOptions(
        None,
        False,
        _times(reading.between),
        steps_of(reading.step),
        _most_fetched(files),
        tuple(map(str, reading.captures)),
        None if reading.compiled is None else str(reading.compiled),
    )
    return Ranks(
        file_list.files, options, cycle=reading.cycle, processes=processes, dask=dask, skipped=file_list.skipped
    )
