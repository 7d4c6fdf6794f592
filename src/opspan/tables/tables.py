"""Defines Tables, the class that every reader returns and every analysis takes. It has frames, and metadata about their
origin.

Times are integer nanoseconds on one clock; `origin_utc_ns` is the UTC time of that clock's zero. This module knows no
vendor's format. The modules in readers/ fill the tables, and storage.py saves and loads them. `opspan.Trace` adds
methods for users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import polars as pl

from opspan import forked
from opspan.errors import MissingPackage, StrictError, UsageError
from opspan.printable import LONGEST_LINE, listed, plural
from opspan.tables import schema
from opspan.tables.clocks import BY_UTC
from opspan.tables.cycles import COLUMN, RecordingSpan, check, merge_cycles, numbers_of, with_cycles
from opspan.tables.issues import Issues
from opspan.tables.metadata import Metadata
from opspan.tables.ranks import decided
from opspan.tables.same import each_once, is_one

if TYPE_CHECKING:
    from typing_extensions import Self

# The key in a rank's options for the time span, [begin, end] in ns, of the part of the trace that was read.
STRETCH = "window_ns"
# If the zeros of two clocks of one machine are closer than this in UTC, both are the same clock. The machine's
# UTC time was then adjusted between the two recordings.
SAME_CLOCK_NS = 60_000_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """The frames by name (docs/schema.md has every column), and a Metadata for each rank.

    Frames that are not given are empty, and columns that are not given are null. Frames are never changed in place: an
    analysis returns `trace.replace(ranges=...)`.
    """

    ranks: tuple[Metadata, ...]
    ranges: pl.DataFrame = field(default_factory=partial(schema.empty, "ranges"))
    relations: pl.DataFrame = field(default_factory=partial(schema.empty, "relations"))
    calls: pl.DataFrame = field(default_factory=partial(schema.empty, "calls"))
    work: pl.DataFrame = field(default_factory=partial(schema.empty, "work"))
    functions: pl.DataFrame = field(default_factory=partial(schema.empty, "functions"))
    threads: pl.DataFrame = field(default_factory=partial(schema.empty, "threads"))
    processes: pl.DataFrame = field(default_factory=partial(schema.empty, "processes"))
    devices: pl.DataFrame = field(default_factory=partial(schema.empty, "devices"))
    memory: pl.DataFrame = field(default_factory=partial(schema.empty, "memory"))
    samples: pl.DataFrame = field(default_factory=partial(schema.empty, "samples"))
    counters: pl.DataFrame = field(default_factory=partial(schema.empty, "counters"))
    metrics: pl.DataFrame = field(default_factory=partial(schema.empty, "metrics"))
    issues: pl.DataFrame = field(default_factory=partial(schema.empty, "issues"))
    provenance: pl.DataFrame = field(default_factory=partial(schema.empty, "provenance"))
    compilations: pl.DataFrame = field(default_factory=partial(schema.empty, "compilations"))
    graph_breaks: pl.DataFrame = field(default_factory=partial(schema.empty, "graph_breaks"))

    def __post_init__(self) -> None:
        if len({rank.rank for rank in self.ranks}) < len(self.ranks):  # the ranks are not numbered yet
            numbered = tuple(dataclasses.replace(rank, rank=number) for number, rank in enumerate(self.ranks))
            object.__setattr__(self, "ranks", numbered)
        for name, frame in self.frames.items():
            object.__setattr__(self, name, schema.conform(name, frame))

    @property
    def frames(self) -> dict[str, pl.DataFrame]:
        """The frames by name."""
        return {name: getattr(self, name) for name in schema.TABLES}

    @property
    def metadata(self) -> Metadata:
        """The metadata of the first rank. All times are on its clock."""
        return self.ranks[0]

    @property
    def origin_utc_ns(self) -> int | None:
        """UTC time of the clock's zero, in ns since 1970."""
        return self.metadata.origin_utc_ns

    @forked.method_elsewhere
    def replace(self, **frames: pl.DataFrame) -> Self:
        """Returns a trace with other frames.

        If the new frames have other rows, columns that an analysis added are dropped from all other frames,
        because these columns refer to rows that no longer exist. `events()` and the views compute them again.
        """
        others = {name: frame for name, frame in self.frames.items() if name not in frames}
        if self.is_analysed and any(_has_other_rows(frame, self.frames[name]) for name, frame in frames.items()):
            others = {name: schema.without_added(name, frame) for name, frame in others.items()}
        return type(self)(self.ranks, **others, **frames)

    @property
    def is_analysed(self) -> bool:
        """True if any frame has columns that an analysis added."""
        return any(not added.isdisjoint(self.frames[name].columns) for name, added in schema.ADDED.items())

    def without_analysis(self) -> Self:
        """Returns the trace without the columns that an analysis added."""
        if not self.is_analysed:
            return self
        return type(self)(
            self.ranks, **{name: schema.without_added(name, frame) for name, frame in self.frames.items()}
        )

    @forked.method_elsewhere
    def check(self) -> Self:
        """Returns the trace itself, or raises a StrictError if an issue is a warning or an error."""
        worse = self.issues.filter(pl.col("severity") != "info")
        if worse.is_empty():
            return self
        first = worse.row(0, named=True)
        others = f" and {worse.height - 1} more" if worse.height > 1 else ""
        raise StrictError(
            f"{first['path'] or 'the trace'}: {first['message']}{others}; expected none (strict). {first['advice']} "
            "Without strict the trace is read, and trace.issues lists them."
        )

    @forked.method_elsewhere
    def to_pandas(self, table: str = "ranges") -> Any:
        """Returns one of the tables as a pandas data frame. Needs pandas and pyarrow: `pip install 'opspan[pandas]'`.

        Args:
            table: the table's name, such as "ranges" or "work".
        """
        if table not in schema.TABLES:
            raise UsageError(f"a trace has no table {table!r}; expected one of {', '.join(schema.TABLES)}")
        missing = [name for name in ("pandas", "pyarrow") if find_spec(name) is None]
        if missing:
            raise MissingPackage(f"to_pandas needs {' and '.join(missing)}: pip install 'opspan[pandas]'")
        frame: pl.DataFrame = getattr(self, table)
        return frame.to_pandas()

    def __repr__(self) -> str:
        first = self.ranks[0] if self.ranks else None
        parts = [first.source if first else "empty"]
        if len(self.ranks) > 1:
            parts.append(plural(len(self.ranks), "rank"))
        if first and first.host:
            parts.append(f"host {first.host}")
        parts += [f"{frame.height:,} {name}" for name, frame in self.frames.items() if frame.height]
        if (duration := self.duration_ns()) is not None:
            parts.append(f"{duration / 1e9:.3f} s")
        return f"{type(self).__name__}({', '.join(parts)})"

    @property
    def paths(self) -> list[str]:
        """The files that the trace was read from."""
        return [path for rank in self.ranks for path in rank.paths]

    def begin_ns(self, *tables: str, with_overhead: bool = False) -> int | None:
        """Returns the first time in these tables, or None if they have no rows.

        Args:
            tables: names of tables.
            with_overhead: include the profiler's own activity.
        """
        frames = (self.frames[name] if with_overhead else own(self.frames[name]) for name in tables)
        starts = [frame["start_ns" if "start_ns" in frame.columns else "time_ns"].min() for frame in frames]
        return min((start for start in starts if isinstance(start, int)), default=None)

    def duration_ns(self) -> int | None:
        """Returns the time from the start of the program's first event to the latest end of its events. With several
        cycles (files written one after another), returns the sum of these times over the cycles."""
        frames = [self.ranges, self.calls, own(self.work)]
        if not any(COLUMN in frame.columns for frame in frames):
            return _duration_ns(frames)
        cycles = {number for frame in frames for number in frame[COLUMN].unique()}
        durations = (_duration_ns([frame.filter(pl.col(COLUMN).eq_missing(n)) for frame in frames]) for n in cycles)
        return sum(duration for duration in durations if duration is not None)


def _duration_ns(frames: Sequence[pl.DataFrame]) -> int | None:
    bounds = [
        bound
        for frame in frames
        for name in ("start_ns", "end_ns")
        for bound in (frame[name].min(), frame[name].max())
        if isinstance(bound, int)
    ]
    return max(bounds) - min(bounds) if bounds else None


def own(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows without the profiler's own activity. The profiler may start long before the program's first
    event, and write its buffers long after the last one. So its rows do not count for the length of a run."""
    if "is_overhead" not in frame.columns or not frame["is_overhead"].any():
        return frame
    return frame.filter(~frame["is_overhead"].fill_null(value=False))


def side_by_side(traces: Sequence[Tables]) -> Tables:
    """Joins several traces into one trace of one run. The result has the ranks of all traces, on the clock of the first
    trace. Columns that an analysis added are dropped, because their row numbers are valid only within one trace."""
    if not traces:
        raise UsageError("no traces to put side by side; expected at least one")
    if len(traces) == 1 and len(traces[0].ranks) != 1:
        return traces[0]  # the ranks were numbered before
    recordings = [one for trace in traces for one in recorded_of(trace)] if len(traces) > 1 else []
    ranks, issues = decided([rank for trace in traces for rank in trace.ranks], recordings)
    if len(traces) == 1 and ranks[0] == traces[0].ranks[0]:
        return traces[0]
    return joined(traces, ranks, issues)


def of_cycle(trace: Tables, number: int) -> Tables:
    """Returns one cycle of each rank, as if the cycle's file had been read alone. Rows without a cycle are kept."""
    check(number, numbers_of(trace.ranks))
    ranks = [(rank, one) for rank in trace.ranks for one in rank.cycles or (rank,) if one.cycle in (None, number)]
    if not any(rank.cycles for rank in trace.ranks):
        return trace
    of_rank = pl.col("rank").is_in([rank.rank for rank, _ in ranks])
    of_number = pl.col(COLUMN).is_null() | (pl.col(COLUMN) == number)
    frames = {name: frame.filter(of_rank) for name, frame in trace.frames.items()}
    frames = {
        name: frame.filter(of_number).drop(COLUMN) if COLUMN in frame.columns else frame
        for name, frame in frames.items()
    }
    metadata = tuple(dataclasses.replace(one, rank=rank.rank, rank_by=rank.rank_by, cycle=None) for rank, one in ranks)
    return Tables(metadata, **frames)


def joined(traces: Sequence[Tables], ranks: Sequence[Metadata], issues: Issues) -> Tables:
    """Joins traces. `ranks` is the metadata of all ranks in the order of the traces, with rank and cycle numbers."""
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in schema.TABLES}
    ids = dict.fromkeys(schema.TABLES, 0)  # the next unused id of each table
    metadata, places = on_one_clock([trace.ranks for trace in traces], ranks, issues)
    rest = iter(ranks)
    for trace, (renamed, shift_ns) in zip(traces, places, strict=True):
        trace = trace.without_analysis() if len(traces) > 1 else trace
        cycles = {one.rank: one.cycle for one in (next(rest) for _ in trace.ranks) if one.cycle is not None}
        for name, frame in trace.frames.items():
            frame = moved(name, frame, renamed, ids, shift_ns)
            frames[name].append(with_cycles(frame, cycles) if cycles and name in schema.IN_CYCLES else frame)
        ids = {name: first_id + id_count(trace.frames[name]) for name, first_id in ids.items()}
    frames["issues"].append(issues.frame())
    # Frames may have columns that a user added, and these may differ between the traces.
    tables = {name: pl.concat(parts, how="diagonal") for name, parts in frames.items()}
    if any(rank.cycles for rank in metadata):
        # Each cycle of a process has a row for the same thread, process or device. The last row is kept, because it may
        # be more complete.
        tables |= {name: tables[name].unique(key, keep="last", maintain_order=True) for name, key in _KEYS.items()}
    return Tables(metadata, **tables)


# The tables in which several cycles have the same rows, and the columns that identify such a row.
_KEYS = {"threads": ("rank", "pid", "tid"), "processes": ("rank", "pid"), "devices": ("rank", "device_id", "uuid")}


def on_one_clock(
    traces: Sequence[Sequence[Metadata]], ranks: Sequence[Metadata], issues: Issues
) -> tuple[tuple[Metadata, ...], list[tuple[dict[int, int], int]]]:
    """Returns the ranks on the clock of the first rank. Also returns, for each trace, a map from its old rank numbers
    to the new ones, and the shift to add to its times. `traces` has the ranks of each trace, and `ranks` has all of
    them with their new numbers."""
    first = traces[0][0]
    cycles: dict[int, list[Metadata]] = {}
    places = []
    rest = iter(ranks)
    for own in traces:
        numbers = {before.rank: next(rest) for before in own}
        shift_ns = clock_shift_ns(own[0], first)
        if shift_ns is None:
            issues.add("clocks_not_aligned", len(own), listed(own[0].paths, longest=LONGEST_LINE))
        for one in numbers.values():
            cycles.setdefault(one.rank, []).append(_on_clock_of(first, one, shift_ns))
        places.append(({before: one.rank for before, one in numbers.items()}, shift_ns or 0))
    return tuple(map(merge_cycles, cycles.values())), places


def recorded_of(trace: Tables) -> list[RecordingSpan | None]:
    """Returns, for each rank, the time in which it was recorded, its processes and its steps."""
    begin, duration = trace.begin_ns("ranges", "calls", "work"), trace.duration_ns()
    if begin is None or duration is None:
        return [None] * len(trace.ranks)
    begin += trace.origin_utc_ns or 0
    when = RecordingSpan(begin, begin + duration, trace.origin_utc_ns is not None)
    return [when._replace(pids=_pids(trace, rank.rank), steps=_steps(trace, rank.rank)) for rank in trace.ranks]


def _pids(trace: Tables, rank: int) -> frozenset[int]:
    """Returns the processes that have events on the host or, without such events, the processes that used a device."""
    for names in (("ranges", "calls", "functions"), ("work",)):
        rows = (_of_rank(trace.frames[name], rank) for name in names)
        if pids := {pid for some in rows for pid in each_once(some, "pid")} - {None}:
            return frozenset(pids)
    return frozenset()


def _steps(trace: Tables, rank: int) -> tuple[int, int] | None:
    """Returns the numbers of the first and the last of torch's numbered steps."""
    names = each_once(_of_rank(trace.ranges, rank), "name").cast(pl.String)
    numbers = names.str.extract(schema.STEP).cast(pl.Int64, strict=False).drop_nulls().to_list()
    return (min(numbers), max(numbers)) if numbers else None


def _of_rank(frame: pl.DataFrame, rank: int) -> pl.DataFrame:
    return frame if is_one(frame, "rank") else frame.filter(pl.col("rank") == rank)


def clock_shift_ns(one: Metadata, other: Metadata) -> int | None:
    """Returns the shift that moves times of `one` to the clock of `other`, or None if it is not known."""
    if one is other:
        return 0
    if one.origin_utc_ns is None or other.origin_utc_ns is None:
        return None
    apart = one.origin_utc_ns - other.origin_utc_ns
    same = one.clock is not None and one.host is not None and (one.clock, one.host) == (other.clock, other.host)
    return 0 if same and abs(apart) < SAME_CLOCK_NS else apart


def _on_clock_of(first: Metadata, metadata: Metadata, shift_ns: int | None) -> Metadata:
    if not shift_ns:
        return metadata
    options = {**metadata.options, BY_UTC: shift_ns}
    if STRETCH in options:
        options[STRETCH] = [time + shift_ns for time in options[STRETCH]]
    return dataclasses.replace(metadata, clock=first.clock, origin_utc_ns=first.origin_utc_ns, options=options)


def _has_other_rows(new: pl.DataFrame, frame: pl.DataFrame) -> bool:
    if "id" not in frame.columns:
        return False
    if "id" not in new.columns:
        return new.height != frame.height or frame["id"].count() > 0
    return not new["id"].equals(frame["id"])


def id_count(frame: pl.DataFrame) -> int:
    highest = frame["id"].max() if "id" in frame.columns else None
    return highest + 1 if isinstance(highest, int) else 0


def ids_of(frame: pl.DataFrame) -> pl.Series:
    """Returns the ids of the rows, or row numbers if some ids are missing or not unique."""
    ids = frame["id"]
    if ids.null_count() or ids.n_unique() != ids.len():
        return pl.int_range(frame.height, dtype=pl.Int64, eager=True).alias("id")
    return ids


def moved(
    table: str, frame: pl.DataFrame, ranks: Mapping[int, int], ids: Mapping[str, int], shift_ns: int
) -> pl.DataFrame:
    """Returns the rows with new rank numbers, with ids that do not collide with those of other traces, and with shifted
    times."""
    if frame.is_empty():
        return frame
    changes = []
    times = schema.TABLES[table].times
    for column in schema.TABLES[table].columns:
        values = pl.col(column.name)
        refers = column.refers or (f"{table}.id" if column.name == "id" else "")
        if column.name == "rank":
            if any(before != after for before, after in ranks.items()) or not is_one(frame, "rank"):
                changes.append(renumbered(ranks))
        elif refers:
            if first := ids[refers.split(".")[0]]:
                changes.append(values + first)
        elif column.name in times and shift_ns:
            changes.append(values + shift_ns)
    return frame.with_columns(changes) if changes else frame


def renumbered(ranks: Mapping[int, int]) -> pl.Expr:
    """Returns an expression for the column `rank` with new numbers. Rows without a rank belong to the first rank."""
    first = next(iter(ranks), 0)
    values = pl.col("rank").fill_null(first)
    changed = {before: after for before, after in ranks.items() if before != after}
    return values.replace(changed) if changed else values
