"""A baseline is a small file that replaces a trace in `opspan diff`. It has the figures that are compared.

    {
     "opspan_baseline": 3,
     "opspan": "0.1.0", "tools": "nsys 2026.2.1.210",             versions: opspan, and the recording tool
     "steps": {"number": 8, "least": 8, "median": 12345.0, "usual": 12349.5, "error": 23.7, "freedom": 7.0},
     "op": {"time": "device", "columns": ["name", "count", "ns", "step", "usual", "error", "freedom"], "rows": [
      ["aten::mm", 96, 9120000, 1140000, 1140000.0, 1800.0, 7.0]
     ]},
     "shape": ...
    }

The columns are those of analysis/figures.py, so a comparison with the file gives the same digits as a comparison with
the trace. Each row is on a line of its own, and rows are sorted by name, so that `git diff` shows what changed in the
run. Anyone may have edited the file, so each value is checked before it is used.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from opspan import private_files
from opspan.addresses import check_local
from opspan.analysis import Analysis
from opspan.analysis.figures import KEYS, Figures, StepFigures
from opspan.errors import NotATrace, NotReadable, ReadError, TooLarge, TooNew, UsageError, WriteError
from opspan.files import open_file
from opspan.printable import as_utf8, path_text, shell_path
from opspan.tables.window import Steps
from opspan.version import VERSION
from opspan.views.diff import several_of

SCHEMA = 3  # version 1 measured a step by its range alone; version 2 had no standard errors of times
_MARK = "opspan_baseline"
MOST_ROWS = 50_000  # maximum number of rows of one grouping (op, kernel, ...), so that the file stays small
MOST_BYTES = 1 << 28
_WHOLE, _REAL = pl.Int64, pl.Float64
_NUMBERS = {"count": _WHOLE, "ns": _WHOLE, "step": _WHOLE, "usual": _REAL, "error": _REAL, "freedom": _REAL}
_MOST_NS = 2**63 - 1
Columns = dict[str, Any]  # name of a column -> type of its values


def save(analysis: Analysis, path: Path, step: Steps | None = None, process: int | None = None) -> list[str]:
    """Writes a baseline. Replaces an existing file only if that file is a baseline. The figures of a grouping (op,
    kernel, ...) with too many rows are left out: returns a sentence for each such grouping."""
    figures = several_of(analysis, list(KEYS), step, process)
    too_large = [by for by, table in figures.items() if table.rows.height > MOST_ROWS]
    tools = dict.fromkeys(" ".join(filter(None, (rank.source, rank.tool_version))) for rank in analysis.tables.ranks)
    head = {
        _MARK: SCHEMA,
        "opspan": VERSION,
        "tools": as_utf8(", ".join(tools)),
        "steps": figures["op"].steps._asdict(),
    }
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    parts += [f'"{by}": {_text(table)}' for by, table in figures.items() if by not in too_large]
    exists = os.path.lexists(check_local(path))
    if exists and not _is_baseline(path):
        raise WriteError(f"{path_text(path)} exists and is no baseline. Nothing was written: choose another name")
    try:
        with private_files.unfinished(path, overwrite=exists) as unfinished:
            unfinished.write_text("{\n " + ",\n ".join(parts) + "\n}\n", encoding="utf-8")
    except OSError as error:
        raise WriteError(f"cannot write {path_text(path)}: {error.strerror or error}") from error
    return [f"It has nothing by {by}: {figures[by].rows.height:,} rows are too many for a baseline" for by in too_large]


def load(path: str | os.PathLike[str], by: str = "op") -> Figures:
    """Returns the figures in a baseline: the same that `figures_of` returns for the trace."""
    path = Path(path)
    if by not in KEYS:
        raise UsageError(f"cannot compare by {by!r}; expected one of {', '.join(KEYS)}")
    document = _document(path)
    number = document[_MARK]
    if type(number) is not int or number < 1:
        raise _damaged(path, f"its version is {json.dumps(number)[:40]}")
    if number > SCHEMA:
        raise TooNew(
            f"{path_text(path)} is a baseline of version {number}, and this opspan knows {SCHEMA}: update opspan"
        )
    if number < SCHEMA:
        raise NotATrace(
            f"{path_text(path)} is a baseline of version {number}, which does not say what this opspan compares; "
            "write it anew with --save-baseline"
        )
    if by not in document:
        raise UsageError(
            f"{path_text(path)} has no figures by {by}, which were too many to keep; compare the traces themselves"
        )
    try:
        return Figures(by, *_read(document, by))
    except (KeyError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, str(error)) from error


def _text(figures: Figures) -> str:
    rows = figures.rows.select(list(_columns(figures.by))).sort(KEYS[figures.by])
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows.iter_rows())
    return f'{{"time": {json.dumps(figures.time)}, "columns": {json.dumps(rows.columns)}, "rows": [\n{lines}\n ]}}'


def _columns(by: str) -> Columns:
    names = {name: _WHOLE if name == "place" else pl.String for name in KEYS[by]}
    return names | ({"position": _WHOLE} if by == "place" else {}) | _NUMBERS


def _is_baseline(path: Path) -> bool:
    try:
        _document(path)
    except ReadError:
        return False
    return True


def _document(path: Path) -> dict[str, Any]:
    try:
        with open_file(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise NotReadable(f"cannot read the baseline {path_text(path)}: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise TooLarge(f"{path_text(path)} has more than {MOST_BYTES:,} bytes: it is no baseline that opspan wrote")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        if f'"{_MARK}"'.encode() in content[:100]:
            raise _damaged(path, str(error)) from error
        document = None
    if not isinstance(document, dict) or _MARK not in document:
        raise NotATrace(
            f"{path_text(path)} is no baseline; `opspan diff FILE --save-baseline {shell_path(path)}` writes one"
        )
    return document


def _damaged(path: Path, why: str) -> NotATrace:
    return NotATrace(f"{path_text(path)} is a baseline that is damaged: {why}; write it anew with --save-baseline")


def _read(document: dict[str, Any], by: str) -> tuple[str, pl.DataFrame, StepFigures]:
    table, steps = _checked(document[by], dict, by), _checked(document["steps"], dict, "steps")
    columns = _columns(by)
    time = table["time"]
    if time not in ("device", "cpu") or (by == "kernel" and time != "device"):
        raise ValueError("its times are of nothing that is known")
    if table["columns"] != list(columns):
        raise ValueError(f"the columns by {by} are other ones")
    rows = _checked(table["rows"], list, "rows")
    if len(rows) > MOST_ROWS:
        raise ValueError(f"there are {len(rows):,} rows by {by}")
    if not all(type(row) is list and len(row) == len(columns) for row in rows):
        raise ValueError(f"a row by {by} has not {len(columns)} values")
    values = {}
    for name, cells in zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True):
        is_good = _CHECKS[columns[name]]
        if not all(cell is None or is_good(cell) for cell in cells):
            raise ValueError(f"{name} by {by} has a value of the wrong type")
        values[name] = list(cells)
    if None in values["count"] or None in values["ns"]:
        raise ValueError(f"a row by {by} has no count or no time")
    frame = pl.DataFrame(values, schema=columns)
    positions = frame["position"].drop_nulls() if "position" in values else pl.Series()
    if frame.select(KEYS[by]).is_duplicated().any() or positions.is_duplicated().any():
        raise ValueError(f"two rows by {by} are of the same")
    step_figures = StepFigures(**steps)
    if not (
        all(_is_whole(number) for number in step_figures[:2]) and all(_is_real(number) for number in step_figures[2:])
    ):
        raise ValueError("steps have a value of the wrong type")
    return time, frame, step_figures


def _checked(value: Any, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{name} is no {'list' if kind is list else 'object'}")
    return value


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_NS


def _is_real(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and value >= 0


_CHECKS: dict[Any, Callable[[Any], bool]] = {
    _WHOLE: _is_whole,
    _REAL: _is_real,
    pl.String: lambda value: type(value) is str and as_utf8(value) == value,
}
