"""Finds the reader for a path by the content of the file or folder, never by its name.

A reader is a module of this package with the functions of `Reader`. A new reader needs a module and a line in
opspan/sources.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import polars as pl

from opspan import sources
from opspan.element_types import is_known, names_in
from opspan.errors import NotATrace, NotReadable, ReadError, UsageError
from opspan.files import check_folder, open_file
from opspan.formats.boundary import boundary
from opspan.formats.budget import check_room
from opspan.printable import listed, path_text
from opspan.readers import _nearby
from opspan.readers._writers import writer_of
from opspan.sources import Source
from opspan.tables import Issues, Tables

if TYPE_CHECKING:
    from opspan.tables.window import Window

HEAD_BYTES = 4096


class Reader(Protocol):
    """The functions of a reader.

    A reader may have two more functions. `read_part(path, window) -> Tables` saves memory by keeping only a part of a
    file. `is_report(path, head) -> bool` recognises a report that the profiler printed. A report is not a trace.
    """

    def sniff(self, path: Path, head: bytes, /) -> bool: ...
    def read(self, path: Path, /) -> Tables: ...


def reader_of(source: Source) -> Reader:
    reader: Reader = import_module(f"opspan.readers.{source.name}")
    return reader


def reads_parts(source: Source) -> bool:
    """Returns whether the source's reader can read a part of a file without reading the whole file."""
    return _read_part(source) is not None


def _read_part(source: Source) -> Callable[[Path, Window], Tables] | None:
    return getattr(reader_of(source), "read_part", None)


# A trace in which all of these tables are empty has nothing to show.
_CONTENT = ("ranges", "calls", "work", "functions", "memory", "samples", "counters")


def read_file(path: Path, source: str | None = None, window: Window | None = None) -> Tables:
    """Reads a trace. Raises an error if the file certainly does not fit into memory. `source`: the name of the reader;
    by default the content decides. `window`: the reader reads only events that overlap the window. Only for readers
    that read parts (`reads_parts`)."""
    reader = source_for(path, source)
    with boundary(path):
        writer = writer_of(path)
        trace = _read(reader, path, window)
        issues = Issues(str(path))
        _note_types(trace.ranges["input_types"], issues)
        if writer is not None:
            if all(trace.frames[name].is_empty() for name in _CONTENT):
                raise NotReadable(
                    f"{path_text(path)} holds nothing yet: {writer} still writes it. Wait until that program has ended"
                )
            issues.add("still_written", detail=writer)
        if issues:
            trace = trace.replace(issues=pl.concat([trace.issues, issues.frame()]))
        return with_compile_log(trace)


def cut_of_file(trace: Tables, path: Path, window: Window) -> Tables:
    """Returns the events that overlap the window, of a trace that was read from the path."""
    from opspan.tables.window import cut

    with boundary(path):
        return cut(trace, window)


def with_compile_log(trace: Tables) -> Tables:
    """Reads torch.compile's log, if a session with `compiled=True` sent the log as marks. Returns the trace with rows
    from this log, and without these marks."""
    marks = trace.ranges.filter(pl.col("is_mark"))
    marks = marks.filter(pl.col("name").cat.starts_with("torch.compile log "))
    if marks.is_empty():
        return trace
    from opspan.readers.compile_logs import with_marks_read

    return with_marks_read(trace, marks)


def _read(source: Source, path: Path, window: Window | None) -> Tables:
    read_part = _read_part(source)
    if window is not None:
        if read_part is None:
            raise ValueError(f"the reader {source.name} reads whole files only")
        return read_part(path, window)
    check_room(path, source.memory, has_parts=read_part is not None)
    return reader_of(source).read(path)


def _note_types(input_types: pl.Series, issues: Issues) -> None:
    """Adds an issue for each unknown type of op inputs. The column holds lists as text, such as ["float", "Scalar"]."""
    if not input_types.count():
        return
    unknown: Counter[str] = Counter()
    for text, count in input_types.value_counts().iter_rows():
        with suppress(ValueError):  # the text is not a list
            unknown.update({name: count for name in set(names_in(text)) if not is_known(name)})
    for name, count in unknown.items():
        issues.add("unknown_types", count, name)


def source_for(path: Path, name: str | None = None) -> Source:
    """Returns the source with this name. Without a name, returns the source whose reader recognises the content."""
    with boundary(path):
        head = _head(path)
        if name is not None:
            return named(name)
        source = _source_of(path, head)
        if source is None:
            raise NotATrace(_not_a_trace(path, head))
        return source


def _source_of(path: Path, head: bytes) -> Source | None:
    return next((source for source in sources.SOURCES if reader_of(source).sniff(path, head)), None)


def named(name: str) -> Source:
    source = sources.source_of(name)
    if source is None:
        known = ", ".join(source.name for source in sources.SOURCES)
        raise UsageError(f"no reader is called {name!r}; expected one of {known}")
    return source


def sniffed(path: Path, name: str) -> bool:
    """Returns whether the reader with this name recognises the file's content."""
    with boundary(path):
        return reader_of(named(name)).sniff(path, _head(path))


def _head(path: Path) -> bytes:
    """Returns the first bytes of a file; no bytes for a folder."""
    try:
        if path.is_dir():
            check_folder(path)
            return b""
        if path.exists() and not path.is_file():
            raise NotReadable(f"{path_text(path)} is neither a file nor a folder")
        if not path.exists() and (meant := _nearby.did_you_mean(_nearby.like(path))):
            raise NotReadable(f"there is no {path_text(path)}; {meant}")
        with open_file(path) as stream:
            return stream.read(HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise NotReadable(f"cannot read {path_text(path)}: {getattr(error, 'strerror', None) or error}") from error


def trace_source(path: Path) -> Source | None:
    """Returns the source whose reader recognises the path as a trace; None for anything else. Does not read the whole
    file."""
    try:
        with boundary(path):
            source = _source_of(path, _head(path))
            return None if source is None or is_report(path, source) else source
    except ReadError:
        return None


def is_report(path: Path, source: Source) -> bool:
    """Returns whether the file is a report that the source's tool printed. A report has sums, and is not a trace."""
    knows_report = getattr(reader_of(source), "is_report", None)
    return knows_report is not None and bool(knows_report(path, _head(path)))


def _is_trace(path: Path) -> bool:
    return trace_source(path) is not None


def _not_a_trace(path: Path, head: bytes) -> str:
    """Returns an error message: what kind of file or folder the path is, and which trace the user probably meant."""
    if path.is_dir():
        return _not_a_trace_folder(path)
    from opspan.readers import _unknown  # imported only here, because it compiles many patterns

    guess = _unknown.guess(path, head)
    if (writer := writer_of(path)) is not None:
        return f"{path_text(path)} is {guess.what}, and {writer} still writes it. Wait until that program has ended"
    part_of = _nearby.around(path, _is_folder_of_parts) if guess.may_be_part else []
    if part_of:
        return f"{path_text(path)} is {guess.what}, which is part of a trace: {_nearby.did_you_mean(part_of)}"
    return _unknown.shown(guess, path)


def _not_a_trace_folder(path: Path) -> str:
    names = sorted(entry.name for entry in islice(path.iterdir(), _nearby.ENTRIES))
    if not names:
        return f"{path_text(path)} is an empty folder: no profiler has written anything there. Record again"
    what = f"{path_text(path)} is a folder with {listed(names, most=3)}"
    if part_of := _nearby.around(path, _is_folder_of_parts):
        return f"{what}, which is part of a trace: {_nearby.did_you_mean(part_of)}"
    if traces := _nearby.inside(path, _is_trace):
        return f"{what}, and is not a trace itself: {_nearby.did_you_mean(traces)}"
    return f"{what}, and no trace is in it; expected the output of a profiler: `opspan table --help` lists which"


def _is_folder_of_parts(path: Path) -> bool:
    """Returns whether all files in the folder are parts of one trace."""
    source = _source_of(path, b"") if _is_trace(path) else None
    return source is not None and not source.is_folder_of_traces
