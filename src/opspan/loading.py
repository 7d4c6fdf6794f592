"""One function per vendor that reads a file and gives torch's kind of list: `load_nsys(path)` -> EventList.

`opspan.load` is the door for everything else: any source, several files, columns instead of events.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from opspan.events import EventList, FunctionEvent


def load_nsys(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of an Nsight Systems report, SQLite export, or parquetdir or arrowdir folder."""
    from opspan.events import events_of
    from opspan.readers import load

    return events_of(load(path, source="nsys", strict=strict))


def load_nvprof(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of an nvprof database; or of what load_nsys reads, as people's scripts say load_nvprof there too."""
    from opspan.events import events_of
    from opspan.readers import load
    from opspan.readers.registry import sniffed

    is_nsys = sniffed(Path(path), "nsys")
    return events_of(load(path, source="nsys" if is_nsys else "nvprof", strict=strict))


def load_kineto(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of a trace that torch.profiler exported (*.pt.trace.json, or the same compressed), as it lists them
    itself. `opspan.load(path).events()` has its ops alone, each for itself, as with every other source.
    """
    from opspan.events import profiler_events_of
    from opspan.readers import load

    return profiler_events_of(load(path, source="kineto", strict=strict))


def load_rocpd(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of an rocpd database, as rocprofv3, rocprof-sys and rocmProfileData (RPD) write."""
    from opspan.events import events_of
    from opspan.readers import load

    return events_of(load(path, source="rocpd", strict=strict))


def load_unitrace(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of a Chrome trace of Intel's unitrace."""
    from opspan.events import events_of
    from opspan.readers import load

    return events_of(load(path, source="unitrace", strict=strict))


def load_vtune(path: str | os.PathLike[str], *, strict: bool = False) -> EventList:
    """The events of a VTune result: its folder, its .vtune file, its dicer.db, or a zip or tar file of it."""
    from opspan.events import events_of
    from opspan.readers import load

    return events_of(load(path, source="vtune", strict=strict))


def load_vtune_report(path: str | os.PathLike[str]) -> pl.DataFrame:
    """What `vtune -report` printed, as a frame: CSV of any delimiter, or text. A summary becomes a long frame (section,
    name, metric, value, text). Sums by name are no events; `Trace.with_metrics` puts them beside those of the trace.
    """
    from opspan.readers.vtune.reports import read_report

    return read_report(Path(path))


def parse_nvprof_trace(path: str | os.PathLike[str]) -> list[FunctionEvent]:
    """The events of load_nvprof as a plain list."""
    return list(load_nvprof(path))
