"""Loads files into the objects that users work with.

    load(path, ...)   -> Trace. The source of a file is recognised by content. Several files are the ranks of one run
    load_nsys(path)   -> EventList, a list like torch's. There is such a function for each vendor's tool

`load_nsys(path)` is short for `load(path, source="nsys").events()`. Like `load`, it takes `strict` and `most_bytes`.
These functions are for people who know torch's load_nvprof. A new source does not need such a function.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from opspan import capture_files, forked
from opspan.addresses import file_of
from opspan.errors import NoSuchStep, ReadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import polars as pl

    from opspan.addresses import File
    from opspan.analysis.narrowed import PartAndSteps
    from opspan.events import EventList, FunctionEvent
    from opspan.tables import Tables
    from opspan.tables.window import Window
    from opspan.trace import Trace


PathOrPaths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


@forked.elsewhere
def load(
    *paths: str | os.PathLike[str],
    source: str | None = None,
    strict: bool = False,
    between: tuple[int, int] | None = None,
    step: int | tuple[int, int] | str | None = None,
    cycle: int | None = None,
    most_bytes: int | None = None,
    captures: PathOrPaths = (),
    compiled: str | os.PathLike[str] | None = None,
) -> Trace:
    """Reads a trace of any source, which is recognised by the content. Several paths become the ranks of one run.

    Files that one process wrote one after the other are cycles of one rank (docs/ranks.md). A path may be an address,
    such as https:// or s3://, which is fetched (docs/remote.md).

    Args:
        paths: files or folders.
        source: name of the reader, such as "nsys", if it should not be chosen by content.
        strict: raise a StrictError if an issue is a warning or an error; otherwise `trace.issues` lists them.
        between: read only what overlaps this time, in nanoseconds since the trace began.
        step: read only what overlaps a step: the number of a ProfilerStep, the first and the last number, or a name or
            pattern of the ranges that are steps, such as "epoch *". If the trace has no ranges ProfilerStep#N, the
            numbers are those of `trace.steps()`.
        cycle: read only this cycle of each rank, counted from 1.
        most_bytes: the most bytes to fetch from an address, before unpacking; 16 GiB if not given.
        captures: traces of the capture of CUDA graphs, or a folder of them. If a graph is launched, its kernels get the
            ops from its capture (docs/graphs.md). If not given, a folder `capture_traces` beside the file is read.
        compiled: what torch.compile wrote about its kernels (docs/compiled.md): a folder of TORCH_TRACE, a log in it, a
            folder of TORCH_COMPILE_DEBUG=1, or a JSON of artifacts. The tables `provenance`, `compilations` and
            `graph_breaks` have it.

    Raises:
        ReadError: a file is missing, is not a trace, or needs more memory than there is.
        UsageError: the arguments make no sense.
    """
    if not paths:
        raise UsageError("nothing to load; expected the path of at least one trace")
    from opspan.analysis import Analysis
    from opspan.remote import expand
    from opspan.tables import Tables
    from opspan.trace import Trace

    files = expand(file_of(path, most_bytes) for path in paths)
    window = window_of(between, step)
    tables, steps = read_all(files, source, window, cycle=cycle, captures=paths_of(captures), compiled=compiled)
    trace = Trace.of(tables.check() if strict else tables)
    if steps is not None:
        trace.analysed = Analysis(Tables(trace.ranks, **trace.frames), iterations=steps)
    return trace


def paths_of(paths: PathOrPaths) -> tuple[str, ...]:
    """Returns the paths as a tuple of texts, even if there is only one path."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return tuple(os.fspath(path) for path in several)


def window_of(between: tuple[int, int] | None, step: int | tuple[int, int] | str | None) -> Window | None:
    """Returns the window, which says which part of a trace to read, or None to read the whole trace."""
    if between is None and step is None:
        return None
    from opspan.tables.window import Window

    return Window(between, (step, step) if isinstance(step, int) else step)


@forked.elsewhere
def load_nsys(path: str | os.PathLike[str], *, strict: bool = False, most_bytes: int | None = None) -> EventList:
    """Returns the events of an Nsight Systems report, SQLite export, or parquetdir or arrowdir folder."""
    return load(path, source="nsys", strict=strict, most_bytes=most_bytes).events()


@forked.elsewhere
def load_nvprof(path: str | os.PathLike[str], *, strict: bool = False, most_bytes: int | None = None) -> EventList:
    """Returns the events of an nvprof database. Also reads all files that load_nsys reads, because scripts use this
    function for both tools."""
    from opspan.readers import sniffed
    from opspan.remote import local, with_address

    file = file_of(path, most_bytes)
    with local(file) as path:
        trace = load(path, source="nsys" if sniffed(path, "nsys") else "nvprof", strict=strict)
        return with_address(trace, file, path).events()


@forked.elsewhere
def load_kineto(path: str | os.PathLike[str], *, strict: bool = False, most_bytes: int | None = None) -> EventList:
    """Returns the events of a trace that torch.profiler exported (*.pt.trace.json, compressed or not), as
    torch.profiler lists them.

    In contrast, `opspan.load(path).events()` lists only ops, without merging any, as for every other source.
    """
    from opspan.events import profiler_events_of

    return profiler_events_of(load(path, source="kineto", strict=strict, most_bytes=most_bytes).analysed)


@forked.elsewhere
def load_rocpd(path: str | os.PathLike[str], *, strict: bool = False, most_bytes: int | None = None) -> EventList:
    """Returns the events of an rocpd database, as rocprofv3, rocprof-sys and rocmProfileData (RPD) write it."""
    return load(path, source="rocpd", strict=strict, most_bytes=most_bytes).events()


@forked.elsewhere
def load_unitrace(path: str | os.PathLike[str], *, strict: bool = False, most_bytes: int | None = None) -> EventList:
    """Returns the events of a Chrome trace of Intel's unitrace."""
    return load(path, source="unitrace", strict=strict, most_bytes=most_bytes).events()


@forked.elsewhere
def load_vtune(path: str | os.PathLike[str], *, strict: bool = False, most_bytes: int | None = None) -> EventList:
    """Returns the events of a VTune result: its folder, its .vtune file, its dicer.db, or a zip or tar file of it."""
    return load(path, source="vtune", strict=strict, most_bytes=most_bytes).events()


@forked.elsewhere
def load_vtune_report(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> pl.DataFrame:
    """Reads what `vtune -report` printed, as text or as CSV with any delimiter. Returns it as a data frame.

    A summary becomes a frame with a row for each value, and the columns section, name, metric, value and text. Any
    other report becomes a frame with sums by name. A report has no events, but `Trace.with_metrics` adds its sums to a
    trace.
    """
    from opspan.readers.vtune.reports import read_report
    from opspan.remote import local

    with local(file_of(path, most_bytes)) as path:
        return read_report(path)


def parse_nvprof_trace(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> list[FunctionEvent]:
    """Returns the events of `load_nvprof` as a plain list."""
    return list(load_nvprof(path, most_bytes=most_bytes))


@forked.elsewhere
def load_recording(path: Path) -> Trace:
    """Returns the recording whose first file is this capture: the events of the process, of the processes that it
    forked, and of their devices. Other recordings in the folder are left out."""
    from opspan.readers import with_compile_log
    from opspan.readers.capture import read_recording
    from opspan.tables import side_by_side
    from opspan.trace import Trace

    trace = with_compile_log(read_recording(path))
    return Trace.of(side_by_side([_with_devices(trace, capture_files.device_files(path))]))


def read_all(
    files: Iterable[File],
    source: str | None,
    window: Window | None,
    reduce: Callable[[Tables], Tables] | None = None,
    cycle: int | None = None,
    unnamed: Collection[File] = (),
    captures: Sequence[str | os.PathLike[str]] = (),
    compiled: str | os.PathLike[str] | None = None,
) -> tuple[Tables, pl.DataFrame | None]:
    """Reads the files and joins them to one trace. Also returns the trace's steps if they were needed to find the
    window. `reduce` is called with each trace, and returns the part of it to keep. `cycle` selects one cycle of each
    process. `unnamed` are files that were found in a folder. If such a file cannot be read, that is only an issue,
    unless no file at all can be read. `captures`, `compiled`: as in `load`."""
    from opspan.analysis import side_by_side

    parts, iterations = [], []
    without: list[tuple[File, NoSuchStep]] = []
    failed: list[ReadError] = []
    for file in files:
        try:
            tables, steps = read(file, source, window, captures)
        except NoSuchStep as error:
            without.append((file, error))
            continue
        except ReadError as error:
            if file not in unnamed:
                raise
            failed.append(error)
            continue
        parts.append(tables if reduce is None else reduce(tables))
        del tables  # frees a large trace, of which only the part that `reduce` returned is needed
        if steps is not None:
            iterations.append(steps)
    for file, no_step in without:
        if not parts or not _has_other_cycle(read(file, source, None)[0], parts):
            raise no_step
    if failed and not parts:
        raise failed[0]
    trace = _with_failed(side_by_side(parts), failed)
    steps = None
    if len(iterations) == len(parts):
        from opspan.analysis.narrowed import steps_of_all

        steps = steps_of_all(parts, iterations, trace)
    if cycle is not None:
        from opspan.tables.tables import of_cycle

        trace = of_cycle(trace, cycle)
        if steps is not None and "cycle" in steps.columns:
            steps = steps.filter(steps["cycle"] == cycle).drop("cycle")
    if compiled is not None:
        from opspan.readers.compile_logs import add_to

        trace = add_to(trace, Path(compiled))
    return trace, steps


def _has_other_cycle(trace: Tables, others: Sequence[Tables]) -> bool:
    """Returns whether another cycle of the same process is in `others`, because that cycle may have the missing
    step."""
    from opspan.tables.ranks import have_other_cycles
    from opspan.tables.tables import recorded_of

    own, rest = (
        [pair for one in traces for pair in zip(one.ranks, recorded_of(one), strict=True)]
        for traces in ([trace], others)
    )
    return have_other_cycles(own, rest)


def _with_failed(trace: Tables, failed: Sequence[ReadError]) -> Tables:
    if not failed:
        return trace
    import polars as pl

    from opspan.tables import Issues

    issues = Issues()
    for error in failed:
        issues.add("unreadable_file", detail=str(error))
    return trace.replace(issues=pl.concat([trace.issues, issues.frame()]))


def read(
    file: File, source: str | None, window: Window | None, captures: Sequence[str | os.PathLike[str]] = ()
) -> PartAndSteps:
    """Reads one trace. Also returns the trace's steps if they were needed to find the window."""
    if isinstance(file, Path):
        return _read(file, source, window, captures)
    from opspan.remote import local, with_address

    with local(file) as path:
        tables, steps = _read(path, source, window, captures)
        return with_address(tables, file, path), steps


def _launches_graphs(trace: Tables) -> bool:
    from opspan.analysis.launches import launches_graph

    return bool(trace.work.height and launches_graph(trace.calls).any())


def _has_compiled_calls(trace: Tables) -> bool:
    """Returns whether compiled code ran in this part of a trace, but the compiler's log was not found. The log may be
    in marks outside of the part."""
    from opspan.analysis.provenance import has_compiled_code

    return trace.provenance.is_empty() and has_compiled_code(trace.ranges)


def _with_captures(trace: Tables, path: Path, paths: Sequence[str | os.PathLike[str]]) -> Tables:
    """Finds the ops of work that graph replays launched. Uses recordings of the graphs' captures, and the trace itself
    if it has captures."""
    has_replays = _launches_graphs(trace)
    if not paths and not has_replays:
        return trace
    from opspan.analysis.captured import Replays
    from opspan.analysis.captured_launches import has_captures
    from opspan.analysis.captured_ops import Capture
    from opspan.readers import read_file
    from opspan.readers.graph_captures import graph_captures
    from opspan.tables import Issues
    from opspan.tables.ranks import rank_in_name

    is_several = len(trace.ranks) > 1
    files = graph_captures(path, None if is_several else trace.metadata.told.rank, paths)
    if not has_replays or not (files or has_captures(trace.calls)):
        return trace
    replays = Replays.of(trace)
    if replays is None:
        return trace
    recordings, issues = [], Issues(trace.metadata.paths[0])
    for file in files:
        try:
            rank = rank_in_name(file.path.name) if is_several else None
            recordings.append(Capture(read_file(file.path), file.batch_size, rank))
        except ReadError as error:
            if paths:
                raise
            issues.add("unreadable_file", detail=str(error))
    return replays.with_captures(recordings, issues)


def _read(
    path: Path, source: str | None, window: Window | None, captures: Sequence[str | os.PathLike[str]]
) -> PartAndSteps:
    """Reads a trace. For a capture, also reads the device files and the samples of perf in the same folder. Adds the
    ops of work that graph replays launched."""
    from opspan.readers import cut_of_file, read_file, reads_parts, source_for

    if window is None:
        trace = read_file(path, source)
        if trace.metadata.source == "capture":
            trace = _with_others(trace, path)
        return _with_captures(trace, path, captures), None
    from opspan.analysis.narrowed import narrowed

    kind = source_for(path, source)
    is_alone = kind.name != "capture" or not (capture_files.device_files(path) or capture_files.perf_text(path))
    if is_alone and reads_parts(kind):
        part, steps = narrowed(lambda window: read_file(path, kind.name, window), window)
        if not _launches_graphs(part) and not _has_compiled_calls(part):
            return _with_captures(part, path, captures), steps
    # Reads the whole trace before cutting it. Captures of graphs and the compiler's log may lie outside of the window,
    # and only complete replays are recognised.
    trace = read_file(path, kind.name)
    trace = _with_captures(trace if is_alone else _with_others(trace, path), path, captures)
    return narrowed(lambda window: trace if window is None else cut_of_file(trace, path, window), window)


def _with_others(host: Tables, path: Path) -> Tables:
    """Adds what other tools recorded beside the capture: events of devices, and samples of perf."""
    host = _with_devices(host, capture_files.device_files(path))
    text = capture_files.perf_text(path)
    if text is None:
        return host
    from opspan.analysis.sampled import with_samples
    from opspan.readers import read_file
    from opspan.tables import Issues

    try:
        return with_samples(host, read_file(text, "perf"), all_processes=path.is_dir())
    except ReadError as error:
        issues = Issues(host.metadata.paths[0])
        issues.add("unreadable_file", detail=str(error))
        return host.replace(issues=host.issues.vstack(issues.frame()))


def _with_devices(host: Tables, devices: Sequence[Path]) -> Tables:
    if not devices:
        return host
    import polars as pl

    from opspan.analysis.device_part import with_device
    from opspan.readers import read_file
    from opspan.tables import Issues

    parts, issues = [], Issues(host.metadata.paths[0])
    for path in devices:
        try:
            parts.append(read_file(path, "kineto"))
        except ReadError as error:
            issues.add("unreadable_file", detail=str(error))
    return with_device(host.replace(issues=pl.concat([host.issues, issues.frame()])), parts)
