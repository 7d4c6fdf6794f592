"""Which views there are, and how their output is written: whole or not at all, and never over a source."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from polars.exceptions import PolarsError

from opspan import private_files
from opspan.analysis import Analysed
from opspan.errors import UsageError, WriteError
from opspan.printable import as_utf8
from opspan.tables import storage
from opspan.views.contents import nothing_in, parts


@dataclass(frozen=True)
class View:
    name: str  # of the module
    suffixes: tuple[str, ...]
    writes: str  # in words, for messages and docs
    is_folder: bool = False  # which replaces a saved trace and nothing else
    pattern: str = ""  # of names that mean this view whatever their suffix
    shows: tuple[str, ...] = ()  # tables whose rows it can show ("marks" and "ranges" apart); empty: all

    @property
    def write(self) -> Callable[[Analysed, Path], list[str]]:
        found: Callable[[Analysed, Path], list[str]] = import_module(f"opspan.views.{self.name}").write
        return found


_ON_A_TIMELINE = ("ranges", "marks", "calls", "functions", "work", "counters")
VIEWS = (
    View("chrome", (".json", ".json.gz"), "a Chrome trace, for Perfetto and chrome://tracing", shows=_ON_A_TIMELINE),
    View("json_table", (".table.json",), "the table by name as JSON, with issues and coverage"),
    View("sqlite", (".sqlite", ".db"), "an analysis database, described in docs/sqlite.md"),
    View("parquet", (".parquet",), "a folder of the trace's tables, which opspan reads back exactly", is_folder=True),
    View("csv", (".csv",), "every range in a row, with what the analysis found", shows=("ranges", "marks")),
    View("vtune_intervals", (), "ranges for VTune to import", pattern="?*-hostname-?*.csv", shows=("ranges",)),
    View(
        "stacks", (".stacks",), "Python functions and ranges as stacks with their own CPU time in ns, for flame graphs"
    ),
    View("device_stacks", (".device.stacks",), "the same with kernels below, and device time"),
)


def view_for(out: Path) -> View:
    """The view whose pattern the name has, else that of the longest suffix that it ends with."""
    for view in VIEWS:
        if view.pattern and fnmatchcase(out.name.lower(), view.pattern):
            return view
    found = [(len(suffix), view) for view in VIEWS for suffix in view.suffixes if _ends_with(out, suffix)]
    if not found:
        known = ", ".join(suffix for view in VIEWS for suffix in (*view.suffixes, *filter(None, [view.pattern])))
        raise UsageError(f"{out} has an unknown suffix; expected one of {known}")
    return max(found, key=lambda pair: pair[0])[1]


def _ends_with(out: Path, suffix: str) -> bool:
    return out.name.lower().endswith(suffix) and len(out.name) > len(suffix)


def export(found: Analysed, out: Path, *, overwrite: bool = False) -> list[str]:
    """Write the trace to `out` as its suffix says. Returns a sentence for each thing that the format cannot hold."""
    view = view_for(out)
    check_output(out, [Path(path) for rank in found.tables.ranks for path in rank.paths], overwrite=overwrite)
    try:
        with private_files.unfinished(out, overwrite=overwrite) as unfinished:
            left_out = view.write(found, unfinished)
    except FileExistsError as error:  # by now: it was not there a moment ago
        raise WriteError(_exists(out)) from error
    except (OSError, PolarsError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise WriteError(f"cannot write {out}: {why}") from error
    if view.shows and not parts(found.tables).keys() & set(view.shows):
        left_out = [nothing_in(found.tables, out.name, view.shows)]
    return left_out


def check_output(out: Path, sources: list[Path], *, overwrite: bool) -> None:
    """Raises WriteError where `out` must not be written. A file that the trace was read from is never replaced, not
    even with `overwrite`."""
    target = out.resolve()
    for source in (path.resolve() for path in sources):
        if _is_same_file(target, source) or (source in target.parents and target.exists()):
            raise WriteError(
                f"{out} is, or lies in, {source}, which the trace was read from. That is never replaced: "
                "choose another name"
            )
    if not (out.exists() or out.is_symlink()):
        return
    if not overwrite:
        raise WriteError(_exists(out))
    is_folder = view_for(out).is_folder
    if out.is_dir() and not is_folder:
        raise WriteError(f"{out} is a folder; expected a file to replace. Nothing was written: choose another name")
    if is_folder and not storage.is_saved(out):
        raise WriteError(f"{out} exists and is not a saved trace. Nothing was written: choose another name")


def _exists(out: Path) -> str:
    return f"{out} exists already. Nothing was written: choose another name, or give --force to replace it"


def _is_same_file(one: Path, other: Path) -> bool:
    """Or two names of one: hard links, or a file system that knows no case. A trace has its sources' names as UTF-8."""
    return as_utf8(str(one)) == as_utf8(str(other)) or (one.exists() and other.exists() and one.samefile(other))
