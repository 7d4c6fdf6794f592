"""Declares the columns that people see. Text, notebooks and pages use the same declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from opspan.events.texts import format_memory, format_time
from opspan.printable import printable
from opspan.text_columns import TextColumn, cut

# Columns of the table by name, if the trace has samples of processors.
SAMPLED = ("samples", "sampled_cpu_ns", "ipc", "front_end_bound", "retiring", "back_end_bound")
_LEAST_NAME = 16  # a name is not cut to fewer characters; if there is less room, other columns are dropped


@dataclass(frozen=True)
class Field:
    """A column that people see. `unit` says how values are written: UNITS writes them as text, src/page/format.ts
    writes them on pages. If there is little room, columns with the highest `rank` are dropped first. Columns with rank
    0 always stay."""

    name: str
    title: str
    unit: str
    help: str = ""
    rank: int = 0
    of: str = ""  # for a share: the column whose value is 100 %; "" if the values are already shares
    total_title: str = ""  # for a share: a text that says what 100 % is, such as the title of the column `of`
    none: str = ""  # the text that is shown for null
    bar: bool = False  # whether each cell on a page has a bar, which shows its share of the sum of the column

    def cells(self, rows: pl.DataFrame) -> list[str]:
        if self.of:
            pairs = rows.select(self.name, self.of).iter_rows()
            return ["" if value is None or not total else f"{100 * value / total:.1f}%" for value, total in pairs]
        write = UNITS[self.unit]
        cells = ("" if value is None else write(value) for value in rows[self.name].to_list())
        return [cell or self.none for cell in cells]

    def column(self, rows: pl.DataFrame) -> TextColumn:
        return TextColumn(self.title, self.cells(rows), self.rank, _LEAST_NAME if self.unit == "name" else None)


# Fields that several views share. A view may replace some of their attributes, such as the rank or the help.
IN = Field("op", "In", "name")
REASON = Field("why", "Why", "text")
RANK = Field("rank", "Rank", "count")
DEVICE_ID = Field("device_id", "Device", "count")
FROM = Field("copy_from", "From", "text")
TO = Field("copy_to", "To", "text")
COPIES = Field("count", "Copies", "count")
BYTES = Field("bytes", "Bytes", "bytes")
COPY_TIME = Field("ns", "Time", "ns")
SPEED = Field("bytes_per_s", "Speed", "rate")
COLLECTIVE = Field("kind", "Collective", "text")
CALLS = Field("count", "Calls", "count")
FUNCTION = Field("function", "Function", "name")
LINE = Field("line", "Line", "name")
SOURCE_OP = Field("source_op", "Source Op", "name")
SIZE = Field("bytes", "Size", "bytes")
TIME = Field("time_ns", "Time", "ns")
TRANSFER = Field("transfer_ns", "Transfer", "ns", "The shortest time of all ranks")
GROUP = Field("group", "Group", "name")
RANKS = Field("group_size", "Ranks", "count", "How many the group has")
SHARE = Field("share", "Share", "share")
NAME = Field("name", "Name", "name")
KIND = Field("kind", "Kind", "text")
SIZES = Field("sizes", "Sizes", "name")
MODULE = Field("module", "Module", "name")
PHASE = Field("phase", "Phase", "name")
NO_BEFORE = Field("place_before", "No. before", "count", "Which of its name and module it was in a step")
NO_AFTER = Field("place_after", "No. after", "count", "Which of its name and module it is in a step")
CHANGE = Field("change_ns", "Change", "signed ns", "After less before")
CHANGE_SHARE = Field("change", "Change %", "signed share", "As a share of before")
SHARE_BEFORE = Field("share_before", "Share before", "share", "Of the time of all rows")
SHARE_AFTER = Field("share_after", "Share after", "share", "Of the time of all rows")
FLOP_RATE = Field("flops_per_s", "FLOP/s", "flop_rate", "Of ops whose cost is known, of all ranks")
BYTE_RATE = Field(
    "bytes_per_s", "Bytes/s", "decimal bytes", "Read and written, of ops whose cost is known, of all ranks"
)
BOUND = Field("bound", "Bound", "text", "Which peak of the device it is nearer to: of computing or of memory")
STEP = Field("step", "Step", "name")
PID = Field("pid", "Process", "text")
OCCUPANCY = Field("occupancy", "Est. occupancy", "share")
NUMBER = Field("number", "No.", "count")
WHERE = Field("place", "Where", "text")
HOST = Field("host", "Host", "text")
MEMORY = Field("memory_bytes", "Memory", "bytes")
STARTED_IN = Field("op", "Started in", "name")
TOTAL_LATENCY = Field("time_ns", "Total latency", "ns")
WAITING = Field("waiting_ns", "Waiting", "ns", "For the rank that came last")
ALGORITHM_BANDWIDTH = Field("algorithm_bytes_per_s", "Algorithm bandwidth", "rate", "Size by time")
BUS_BANDWIDTH = Field("bus_bytes_per_s", "Bus bandwidth", "rate", "What each link had to carry, by time")
BLOCKS_PER_SM = Field(
    "blocks_per_sm", "Blocks per SM", "number", "Blocks of a launch for each multiprocessor, weighted by time"
)
TENSOR_CORES = Field("uses_tensor_cores", "Tensor cores", "text", "As far as the kernel's name says")
# The columns that say to which rank, process, device, context and stream a row belongs. Most views show only the
# columns whose values differ.
PLACES = (
    RANK,
    PID,
    DEVICE_ID,
    Field("context_id", "Context", "text"),
    Field("stream_id", "Stream", "text"),
)


def share(name: str, title: str, of: str, total_title: str, rank: int = 0) -> Field:
    """Returns a field that shows the column `name` as a percentage of the column `of`. `total_title` is the text that
    names the column `of` for people."""
    return Field(name, title, "share", rank=rank, of=of, total_title=total_title)


def pick(fields: Iterable[Field], names: str | Iterable[str]) -> list[Field]:
    """Returns the fields with these names, in the order of the names."""
    by_name = {field.name: field for field in fields}
    return [by_name[name] for name in (names.split() if isinstance(names, str) else names)]


def with_values(fields: Iterable[Field], rows: pl.DataFrame) -> list[Field]:
    """Returns the fields whose column has any value."""
    return [field for field in fields if field.name in rows.columns and rows[field.name].count()]


def varying_fields(fields: Iterable[Field], rows: pl.DataFrame, always: Sequence[str] = ()) -> list[Field]:
    """Returns the fields whose column has more than one value, and those named in `always`."""
    known = [field for field in fields if field.name in rows.columns]
    return [field for field in known if field.name in always or rows[field.name].n_unique() > 1]


def shares_of_kinds(titles: dict[str, str], rows: pl.DataFrame, of: str, total_title: str) -> list[Field]:
    """Returns a field for each kind of time that is above 0 in any row. The field shows the column KIND_ns as a share
    of the column `of`."""
    kinds = [kind for kind in titles if rows[f"{kind}_ns"].sum()]
    return [share(f"{kind}_ns", titles[kind], of, total_title, rank) for rank, kind in enumerate(kinds, start=1)]


def shares_note(fields: Iterable[Field]) -> list[str]:
    """Returns a line that says what 100 % is in each column of shares."""
    titles: dict[str, list[str]] = {}
    for field in fields:
        if field.total_title:
            titles.setdefault(field.total_title, []).append(field.title)
    text = "; ".join(f"{', '.join(columns)} of {total_title}" for total_title, columns in titles.items())
    return [f"Shares: {text}"] if text else []


# --- how values are written


def time_text(ns: float) -> str:
    return f"-{format_time(-ns / 1000)}" if ns < 0 else format_time(ns / 1000)


def short_name(name: str, width: int) -> str:
    return cut(printable(name), width, cut_end=False)


def short_number(value: float, unit: str = "") -> str:
    """Writes three digits and a prefix: 1.23 T."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 0.9995 * 10**power:
            return f"{value / 10**power:.3g} {prefix}{unit}" if value < 999.5 * 10**power else f"{value:.3g} {unit}"
    return f"{value:.3g} {unit}".rstrip()


def _text(value: object) -> str:
    return printable(str(value))


def _changed_time(ns: float) -> str:
    return f"{'+' if ns > 0 else ''}{time_text(ns)}" if ns else ""


UNITS: dict[str, Callable[[Any], str]] = {
    "name": _text,
    "text": _text,
    "count": _text,
    "ns": time_text,
    "signed ns": _changed_time,
    "share": lambda share: f"{100 * share:.1f}%",
    "signed share": lambda share: f"{100 * share:+.1f}%",
    "bytes": format_memory,
    "rate": lambda rate: f"{rate / 1e9:,.3f} GB/s",
    "flag": lambda flag: "*" if flag else "",
    "state": lambda state: "" if state == "same" else state,
    "number": lambda number: f"{number:,.2f}",
    "mean": lambda mean: f"{mean:,.1f}",
    "flop": short_number,
    "flop_rate": short_number,
    "decimal bytes": lambda size: short_number(size, "B"),
}
