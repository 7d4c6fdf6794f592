"""Reads Chrome traces (JSON) as columns, for the readers of profilers that write such traces. The file is read in
pieces, so that a file of gigabytes never has to fit into memory. Events never become Python objects.

The native side parses the text (native/columns/events.cpp says what it tolerates). The readers know what categories and
args mean.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import polars as pl

from opspan import native
from opspan.errors import NotATrace, NotReadable, ReadError
from opspan.files import open_file
from opspan.formats import progress
from opspan.formats.budget import EVENT
from opspan.formats.chrome_bytes import Reading
from opspan.formats.columns import is_time
from opspan.formats.compressed import FAILURES, opened
from opspan.formats.pieces import Columns
from opspan.printable import listed_counts
from opspan.row_numbers import ROW_NUMBER
from opspan.tables import Issues
from opspan.tables.schema import Dtype, without_rows

# The types that a value of args can be read as; native/columns/events.cpp has the same numbers. LIST and JSON are both
# JSON text: LIST for few distinct values, JSON for mostly distinct ones. ONE is an integer, or a list with one integer.
INTEGER, REAL, TEXT, LIST, JSON, ONE, _CATEGORY = range(7)

_START, _MEMBERS, _EVENTS, _BARE_EVENTS, _DONE = range(5)
_EVENT, _MEMBER, _STRUCTURE, _SKIPPED, _END_MISSING = range(5)

_PIECE: Final = 8 << 20
_SNIFFED: Final = 256 << 10
_BETWEEN: Final = b" \t\r\n,"  # characters between events
_MOST_BETWEEN: Final = 1_024
_BEFORE: Final = b"\xef\xbb\xbf \t\r\n"
# The number of threads is limited, because each thread uses some tens of megabytes.
_THREADS: Final = min(len(os.sched_getaffinity(0)), 8)
_SINCE_1970_NS: Final = 10**18
# The group of events that say nothing about the program. They are neither read nor counted as skipped.
BOOKKEEPING: Final = "bookkeeping"
_NO_ARGS: Final = pl.DataFrame(schema={"column": pl.String, "key": pl.String, "as": pl.UInt8})
_col = pl.col
T = TypeVar("T")


class Arg(NamedTuple):
    """A column that is read from the args of events. Its values are those that events have under one of `keys`."""

    column: str
    as_: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class _TextRows(Generic[T]):
    """The rows that native code found in a text. `result` is what the caller's function `make` returned for the events
    among them."""

    rows: int  # the number of events and other rows
    state: int = _START  # the parser's state after the text
    used: int = 0  # bytes of the text that were parsed
    last: int = 0  # where the last row begins
    others: pl.DataFrame = field(default_factory=pl.DataFrame)
    events: int = 0
    odd: int = 0
    damaged: int = 0
    result: T | None = None  # None if there are no events


class ChromeFile:
    """A Chrome trace. Its events can be read once. After that, `members` has the file's other top-level members."""

    def __init__(self, path: Path, issues: Issues) -> None:
        self.path = path
        self.members: dict[str, Any] = {}
        self.is_open_ended = False  # whether the file ends after an event, with brackets still open
        self._issues = issues
        self._has_events = False
        self._is_cut = False  # whether an issue already says that the file is cut off

    def pieces(
        self, args: Sequence[Arg], make: Callable[[pl.DataFrame], T], stems: tuple[str, ...] = ()
    ) -> Iterator[T]:
        """Calls `make` with frames of some events each, on several threads, and yields the results. A frame has the
        columns ph, cat, name, pid, tid, id, ts_ns and dur_ns. The columns pid_text and tid_text hold ids that are not
        numbers. It also has the columns of `args`, and `rest`, the JSON of all other args."""
        rows = [(arg.column, key, arg.as_) for arg in (*args, Arg("cat", _CATEGORY, stems)) for key in arg.keys]
        columns = pl.DataFrame(rows, schema=_NO_ARGS.schema, orient="row")
        try:
            with open_file(self.path) as packed:
                head = packed.read(6)
            with closing(opened(self.path, head)) as stream:
                parse = partial(_parse, args=columns, make=make)
                yield from self._pieces(Reading(stream), parse)
        except OSError as error:
            raise NotReadable(f"cannot read {self.path}: {error.strerror or error}") from error
        if not self._has_events:
            raise NotATrace(f"{self.path} has no traceEvents; expected the JSON of a Chrome trace")

    def _pieces(self, reading: Reading, parse: Callable[[bytes | memoryview, int, bool], _TextRows[T]]) -> Iterator[T]:
        """Parses several pieces in parallel. Each later piece is parsed as if it began with an event. If the end of the
        previous piece shows that this was wrong, the piece is parsed again, together with the rest of the previous
        piece."""
        state = supposed = _START
        rest = b""
        ahead: deque[tuple[memoryview, int, bool, Future[_TextRows[T]]]] = deque()
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(_THREADS) as parsers:
            fresh = reader.submit(reading.piece, _PIECE)
            is_read = False
            while ahead or not is_read:
                while not is_read and len(ahead) <= _THREADS:
                    piece, is_read, issue = fresh.result()
                    if issue:
                        self._issues.add(issue[0], 1, issue[1])
                        self._is_cut = True
                    if not is_read:
                        # The next piece is at least as long as the unparsed rest, so an event longer than a piece is
                        # parsed only a few times.
                        fresh = reader.submit(reading.piece, max(_PIECE, len(rest)))
                    ahead.append((piece, supposed, is_read, parsers.submit(parse, piece, supposed, is_read)))
                    if supposed == _START:
                        supposed = _BARE_EVENTS if bytes(piece[:_SNIFFED]).lstrip(_BEFORE)[:1] == b"[" else _EVENTS
                piece, was_supposed, is_last, parsing = ahead.popleft()
                text: bytes | memoryview = piece
                parsed: _TextRows[T] | None = parsing.result()
                if state != was_supposed or not _is_between(rest):
                    text, parsed = rest + bytes(text), None
                while is_last or not _is_between(text):
                    # A text without a complete event is skipped if it is longer than any event may be.
                    is_over = not is_last and len(text) > EVENT.allows()
                    if parsed is None or is_over:
                        parsed = parse(text, state, is_last or is_over)
                    if not parsed.rows:
                        break
                    self._note(parsed, bytes(text[parsed.last : parsed.used]), state, is_over)
                    state, text = parsed.state, text[parsed.used :]
                    if parsed.result is not None:
                        progress.add(parsed.events)
                        yield parsed.result
                    parsed = None
                # Text after the end of the JSON is dropped. The loop still reads it, because reading may show damage.
                rest = b"" if state == _DONE else bytes(text)
                reading.done(piece)

    def _note(self, parsed: _TextRows[T], last: bytes, before: int, is_over: bool) -> None:
        """Handles all rows that are not events. `last` has the bytes of the last row, which is too long if
        `is_over`."""
        for what, state, name, value in parsed.others.iter_rows():
            if what == _STRUCTURE and state in (_EVENTS, _BARE_EVENTS):
                self._has_events = True
            elif what == _MEMBER:
                self.members[name] = _json_value(value)
            elif what == _SKIPPED:
                if before == _START:
                    raise NotATrace(f"{self.path} is not JSON; expected the JSON of a Chrome trace")
                self._issues.add("damaged_file")
            elif what == _END_MISSING and is_over:
                self._issues.add("over_budget", detail=EVENT.message())
            elif what == _END_MISSING and self._has_events and not self._is_cut:
                self.is_open_ended = not last.strip(_BETWEEN)
                if not self.is_open_ended:
                    self._issues.add("truncated_file")
            before = state
        self._issues.add("odd_cells", parsed.odd, "fields of events")
        self._issues.add("damaged_file", parsed.damaged, "args of events")


def _is_between(text: bytes | memoryview) -> bool:
    """Returns whether the text has only characters that separate events, and few of them."""
    return len(text) < _MOST_BETWEEN and not bytes(text).strip(_BETWEEN)


def _parse(
    text: bytes | memoryview, state: int, is_last: bool, args: pl.DataFrame, make: Callable[[pl.DataFrame], T]
) -> _TextRows[T]:
    rows = native.chrome_events(text, args, state, is_last)
    if not rows.height:
        return _TextRows(0)
    is_event = rows["what"] == _EVENT
    odd, damaged = rows.select("is_odd", "is_damaged").sum().row(0)
    others = rows.select("what", "state", "name", "rest")
    others = others.clear() if is_event.all() else others.filter(~is_event)
    state, used, last = int(rows["state"][-1]), int(rows["end"][-1]), int(rows["end"][-2]) if rows.height > 1 else 0
    events = rows.drop("what", "state", "end", "is_odd", "is_damaged")
    if others.height:
        events = events.filter(is_event)
    result = make(events) if events.height else None
    return _TextRows(rows.height, state, used, last, others, events.height, odd, damaged, result)


@dataclass(frozen=True)
class Groups:
    """The rules by which a reader sorts events into groups. `of` returns the group for values of `keys`, which include
    `ph` and `cat`. `columns` has the columns that each group needs. The column `at` is the event's number in the file.
    Groups in `timeless` also keep events without a time. If a category begins with one of `stems` and "_", only the
    stem is read."""

    keys: Mapping[str, pl.Expr]
    of: Callable[..., str | None]  # returns None to skip the event
    columns: Mapping[str, tuple[str, ...]]
    args: Sequence[Arg]
    timeless: frozenset[str] = frozenset()
    stems: tuple[str, ...] = ()

    @property
    def dtypes(self) -> dict[str, Dtype]:
        of_args = {arg.column: _DTYPES.get(arg.as_, pl.Categorical) for arg in self.args}
        return {**_FIELDS, **of_args}


_DTYPES: Final[dict[int, Dtype]] = {INTEGER: pl.Int64, ONE: pl.Int64, REAL: pl.Float64, JSON: pl.String}
_FIELDS: Final[dict[str, Dtype]] = {
    **dict.fromkeys(("ph", "cat", "name", "pid_text", "tid_text"), pl.Categorical),
    **dict.fromkeys(("pid", "tid", "id", "ts_ns", "dur_ns"), pl.Int64),
    "rest": pl.String,
    "at": ROW_NUMBER,
}


def gathered(chrome_file: ChromeFile, groups: Groups, issues: Issues) -> dict[str, pl.DataFrame]:
    """Returns the events of each group. Leaves out events that have no group, and events that have no time although
    their group needs one, and counts them as issues."""
    columns_of = {group: Columns() for group in groups.columns}
    skipped: Counter[str] = Counter()
    before = 0
    for piece in chrome_file.pieces(groups.args, lambda events: _group(events, groups), groups.stems):
        skipped.update(piece.skipped)
        for group, rows in piece.groups.items():
            issues.add("no_time", piece.timeless[group], f"events that are {group}")
            numbers = {"at": _col("at") + before} if "at" in rows.columns else {}
            columns_of[group].add(rows.with_columns(**numbers))
        before += piece.events
    issues.add("skipped_events", skipped.total(), listed_counts(dict(sorted(skipped.items()))))
    dtypes = groups.dtypes
    return {
        group: columns_of.pop(group).frame(without_rows({column: dtypes[column] for column in columns}))
        for group, columns in groups.columns.items()
    }


class _EventGroups(NamedTuple):
    """The events of a piece, by group."""

    events: int
    groups: dict[str, pl.DataFrame]
    timeless: Counter[str]  # the number of events in each group that were left out because they have no time
    skipped: Counter[str]  # the number of events of each kind that have no group


def _group(events: pl.DataFrame, groups: Groups) -> _EventGroups:
    # Calls `groups.of` once for each distinct key, not for each event.
    keys = events.select(**groups.keys)
    distinct = keys.unique(maintain_order=True)
    names = [groups.of(*row) for row in distinct.iter_rows()]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(names))}
    grouped: pl.Series | None = None  # None if all events are of one group
    if len(numbers) > 1:
        of_keys = distinct.with_columns(group=pl.Series([numbers[name] for name in names], dtype=pl.UInt8))
        grouped = keys.join(of_keys, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")["group"]
    numbered = events.with_row_index("at")
    piece = _EventGroups(events.height, {}, Counter(), Counter())
    for group, number in numbers.items():
        chosen = None if grouped is None else grouped == number
        if group is None:
            piece.skipped.update(_kinds_of(_only(keys, chosen)))
        elif group != BOOKKEEPING:
            columns = groups.columns[group]
            rows = _only(numbered.select(_needed(numbered, groups.args, columns)), chosen)
            timed = rows if group in groups.timeless else _timed(rows)
            piece.timeless[group] = rows.height - timed.height
            piece.groups[group] = put_back(timed, groups.args, columns).select(columns)
    return piece


def _only(rows: pl.DataFrame, chosen: pl.Series | None) -> pl.DataFrame:
    return rows if chosen is None else rows.filter(chosen)


def _needed(rows: pl.DataFrame, args: Sequence[Arg], columns: Iterable[str]) -> list[str]:
    """Returns the columns to select: `columns`, and the columns that are needed to compute them."""
    of_rest = {arg.column for arg in args} if "rest" in columns else set()
    return [name for name in rows.columns if name in {"ts_ns", *columns} or name in of_rest]


def put_back(rows: pl.DataFrame, args: Sequence[Arg], columns: Iterable[str]) -> pl.DataFrame:
    """Puts args back into the JSON `rest` if the columns that they were read into are not selected."""
    if "rest" not in columns:
        return rows
    unread = [arg for arg in args if arg.column in rows.columns and arg.column not in columns]
    lost = [arg for arg in unread if rows[arg.column].count()]
    if not lost:
        return rows
    parts = [pl.concat_str(pl.lit(f"{json.dumps(arg.keys[0])}: "), _json_of(rows, arg)) for arg in lost]
    members = pl.concat_str(
        [_col("rest").str.slice(1).str.strip_suffix("}"), *parts], separator=", ", ignore_nulls=True
    )
    return rows.with_columns(rest=pl.when(members != "").then(pl.concat_str(pl.lit("{"), members, pl.lit("}"))))


def _json_of(rows: pl.DataFrame, arg: Arg) -> pl.Expr:
    value = _col(arg.column).cast(pl.String)
    if arg.as_ == ONE:
        return pl.concat_str(pl.lit("["), value, pl.lit("]"))
    if arg.as_ not in (TEXT, LIST):
        return value
    is_json = value.str.contains(r"^[\[{]") if arg.as_ == LIST else pl.lit(value=False)
    distinct = rows[arg.column].unique().drop_nulls().cast(pl.String)
    quoted = [json.dumps(text) for text in distinct]
    return pl.when(is_json).then(value).otherwise(value.replace_strict(distinct, quoted, default=None))


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    known = rows.select(is_time(_col("ts_ns")).fill_null(value=False)).to_series()
    return rows if known.all() else rows.filter(known)


def _kinds_of(keys: pl.DataFrame) -> dict[str, int]:
    phase = pl.coalesce(pl.lit("phase ") + _col("ph").cast(pl.String), pl.lit("no phase"))
    kind = pl.coalesce(_col("cat").cast(pl.String), phase)
    return dict(keys.group_by(kind.alias("kind")).len().iter_rows())


def times() -> tuple[pl.Expr, pl.Expr]:
    """Returns expressions for start_ns and end_ns of events. The end of an event without a duration is null."""
    return _col("ts_ns").alias("start_ns"), (_col("ts_ns") + _col("dur_ns")).alias("end_ns")


def is_utc(*frames: pl.DataFrame) -> bool:
    """Returns whether the times in the tables can be UTC times, because all of them are after September 2001."""
    firsts = (frame["start_ns"].min() for frame in frames)
    return min((first for first in firsts if isinstance(first, int)), default=0) > _SINCE_1970_NS


def _json_value(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):  # an integer has thousands of digits, or lists are nested too deeply
        return None


def beginning(path: Path, head: bytes) -> tuple[dict[str, Any], pl.DataFrame]:
    """Returns the first members and events of a file that may be a Chrome trace. Both are empty if it is not one."""
    none: dict[str, Any] = {}
    try:
        with closing(opened(path, head)) as stream:
            text = stream.read(_SNIFFED)
            while len(text) < _SNIFFED and (more := stream.read(_SNIFFED - len(text))):
                text += more
    except (*FAILURES, ReadError):
        return none, pl.DataFrame()
    if not text.lstrip(_BEFORE).startswith((b"{", b"[")):
        return none, pl.DataFrame()
    members, events, state = none, [], _START
    while text:
        rows = native.chrome_events(text, _NO_ARGS, state, False)
        if not rows.height:
            break
        for name, value in rows.filter(_col("what") == _MEMBER).select("name", "rest").iter_rows():
            members[name] = _json_value(value)
        events.append(rows.filter(_col("what") == _EVENT))
        state, text = int(rows["state"][-1]), text[int(rows["end"][-1]) :]
        if state == _DONE:
            break
    return members, pl.concat(events) if events else pl.DataFrame()
