"""Holds a capture file as arrays: the header, the texts, and the units (64-byte records). docs/formats/capture.md
describes the bytes.

chunks.py reads the bytes, and halves.py widens 32-byte units. ranges.py and tables.py interpret the units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.formats.budget import Meter
from opspan.readers.capture import layout

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Header:
    pid: int
    parent_pid: int
    open_monotonic_ns: int
    open_utc_ns: int
    close_monotonic_ns: int  # 0 if the file was never closed
    close_utc_ns: int
    state: int  # OPEN, CLOSED or FULL (layout.py)
    producer: int  # 1 means opspan.record, 2 means the collectors
    lost: int
    forked: bool
    host: str
    arguments: tuple[str, ...]
    # The variables in which a launcher told the process its rank, entries about the processor, and facts about the
    # process (process_facts.py).
    environment: Mapping[str, str]
    session: tuple[int, int]  # identifies the recording: its start time, and the process that started it
    segment: int  # number of the segment in a rolling recording, from 1 on; 0 if the file has no segments


@dataclass(frozen=True)
class Log:
    """One thread's sequence of units. In a long run the system reuses thread ids, so one id may have several logs."""

    tid: int
    thread_name: str


@dataclass(frozen=True)
class Units:
    """Units of the file, sorted by log and number. `i64(k)` is word k of all units."""

    words: Ints  # a row for each unit, with eight columns
    keys: Ints  # log and number of each unit as one integer, ascending

    @classmethod
    def joined(cls, parts: Sequence[Units]) -> Units:
        words, keys = np.empty((0, 8), dtype=np.int64), np.empty(0, dtype=np.int64)
        return cls(
            np.concatenate([words, *(part.words for part in parts)]),
            np.concatenate([keys, *(part.keys for part in parts)]),
        )

    def __len__(self) -> int:
        return len(self.words)

    def where(self, mask: npt.NDArray[np.bool_]) -> Units:
        return Units(self.words[mask], self.keys[mask])

    def at(self, rows: Ints | slice) -> Units:
        return Units(self.words[rows], self.keys[rows])

    def of(self, *kinds: int) -> Units:
        return self.where(self.kind_is(*kinds))

    def kind_is(self, *kinds: int) -> Bools:
        wanted = np.zeros(256, dtype=np.bool_)
        wanted[list(kinds)] = True
        return wanted[self.kinds]

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return self.u8(0)

    def i64(self, k: int) -> Ints:
        return np.ascontiguousarray(self.words[:, k])

    def u32(self, k: int) -> npt.NDArray[np.uint32]:
        return np.ascontiguousarray(self.words.view(np.uint32)[:, k])

    def u16(self, k: int) -> npt.NDArray[np.uint16]:
        return np.ascontiguousarray(self.words.view(np.uint16)[:, k])

    def u8(self, k: int) -> npt.NDArray[np.uint8]:
        return np.ascontiguousarray(self.words.view(np.uint8)[:, k])

    @property
    def logs(self) -> Ints:
        return self.keys >> layout.NUMBER_BITS

    @property
    def owners(self) -> Ints:
        """For each unit, the key of the unit that it belongs to (its owner). Word 1 holds the owner's number. The owner
        is in the same log."""
        numbers = self.i64(1)
        known = (numbers >= 0) & (numbers < 1 << layout.NUMBER_BITS)
        return np.where(known, (self.logs << layout.NUMBER_BITS) | numbers, layout.NOWHERE)


@dataclass(frozen=True)
class KeyRun:
    """Consecutive units of one log in a Piece."""

    first_key: int
    count: int
    steps: npt.NDArray[np.uint32] | None  # each key minus the first key; None means 0, 1, 2, ...

    @property
    def keys(self) -> Ints:
        return self.first_key + (np.arange(self.count) if self.steps is None else self.steps.astype(np.int64))

    def find(self, keys: Ints) -> Ints:
        """Returns the index of each key in the run, or -1 if the run lacks the key."""
        past = keys - self.first_key
        if self.steps is None:
            return np.where((past >= 0) & (past < self.count), past, -1)
        return find(self.steps, past)


@dataclass(frozen=True)
class Piece:
    """The units of some ranges of a file. The keys of the units are stored as runs, which take little memory."""

    words: Ints
    runs: tuple[KeyRun, ...]

    @classmethod
    def of(cls, words: Ints, keys: Ints) -> Piece:
        bounds = np.flatnonzero(np.diff(keys) >= layout.FURTHEST) + 1
        runs = []
        for some in np.split(keys, bounds):
            past = (some - some[0]).astype(np.uint32) if some[-1] - some[0] >= len(some) else None
            runs.append(KeyRun(int(some[0]), len(some), past))
        return cls(words, tuple(runs))

    @property
    def units(self) -> Units:
        return Units(self.words, np.concatenate([run.keys for run in self.runs]))


class Ranges:
    """The units of a file's ranges, in pieces. A range's row is its position among all ranges, sorted by key."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces: list[Piece] = list(pieces)
        self._first_rows = np.cumsum([0, *(len(piece.words) for piece in pieces)])
        self._runs = [run for piece in pieces for run in piece.runs]
        self._first_keys = np.array([run.first_key for run in self._runs], dtype=np.int64)
        self._run_rows = np.cumsum([0, *(run.count for run in self._runs)])

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __iter__(self) -> Iterator[tuple[int, Units]]:
        """Yields for each piece the row of its first range, and its units."""
        for first, piece in zip(self._first_rows.tolist(), self._pieces, strict=False):
            yield first, piece.units

    def pop_pieces(self) -> Iterator[tuple[int, Units]]:
        """Iterates over the pieces as __iter__ does, but only once. Keeps no reference to a piece that was yielded, so
        that the memory of the piece can be freed."""
        self._pieces.reverse()
        for first in self._first_rows[:-1].tolist():
            yield first, self._pieces.pop().units

    def rows(self, keys: Ints) -> Ints:
        """Returns for each key the row of the range with that key, or -1 without such a range."""
        rows = np.full(len(keys), -1, dtype=np.int64)
        for number, places in _by_number(np.searchsorted(self._first_keys, keys, side="right") - 1):
            if number >= 0:
                at = self._runs[number].find(keys[places])
                rows[places] = np.where(at >= 0, at + self._run_rows[number], -1)
        return rows

    def at(self, rows: Ints) -> Units:
        words, keys = np.empty((len(rows), 8), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
        for number, places in _by_number(np.searchsorted(self._first_rows, rows, side="right") - 1):
            units, some = self._pieces[number].units, rows[places] - self._first_rows[number]
            words[places], keys[places] = units.words[some], units.keys[some]
        return Units(words, keys)


def _by_number(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Yields each distinct number, and the indices at which it occurs."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order])) + 1
    for places in np.split(order, bounds) if len(order) else ():
        yield int(numbers[places[0]]), places


@dataclass(frozen=True)
class Texts:
    """The file's texts by id. Row 0 of the column is null. Id 0 and ids that are not in the file refer to row 0."""

    column: pl.Series
    ids: Ints  # the id of each row of `column` from row 1 on, ascending
    written: Meter  # limits the total size of the texts that `of` returns

    def rows(self, ids: npt.NDArray[np.uint32] | Ints) -> Ints:
        wanted = ids.astype(np.int64, copy=False)
        last = int(self.ids[-1]) if len(self.ids) else 0
        if last == len(self.ids):  # in an undamaged file the ids are 1, 2, 3, ...
            return np.where((wanted > 0) & (wanted <= last), wanted, 0)
        return find(self.ids, wanted) + 1

    def of(self, ids: npt.NDArray[np.uint32] | Ints) -> pl.Series:
        return self.written.gather(self.column, pl.Series(self.rows(ids)))

    def categories(self, ids: npt.NDArray[np.uint32] | Ints) -> pl.Series:
        """Returns the texts of the ids, as a Categorical that holds no other texts."""
        rows = self.rows(ids)
        used, places = distinct(rows, len(self.column))
        return self.column.gather(used).cast(pl.Categorical).gather(places)

    def missing(self, ids: npt.NDArray[np.uint32] | Ints) -> int:
        return int(np.count_nonzero((ids != 0) & (self.rows(ids) == 0)))


@dataclass(frozen=True)
class CaptureFile:
    path: Path
    written: Meter  # limits the total size of texts, and of payloads as JSON
    header: Header
    texts: Texts
    logs: tuple[Log, ...]
    ranges: Ranges
    units: Units  # all units that are not ranges
    left_out: int  # number of ranges that were not read, because only a part of the file was requested

    @property
    def is_part(self) -> bool:
        """True if units may refer to missing units, because only a part of the recording was read."""
        return bool(self.left_out) or self.header.segment > 1

    @property
    def tids(self) -> Ints:
        return np.array([log.tid for log in self.logs], dtype=np.int64)


def find(sorted_keys: Ints | npt.NDArray[np.uint32], wanted: Ints) -> Ints:
    """Returns the index of each wanted key among the sorted keys, or -1 if the key is missing."""
    if not len(sorted_keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return np.where(sorted_keys[at] == wanted, at, -1)


def distinct(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """Returns the distinct values of `rows`, ascending, and for each element of `rows` its index among these values.
    All values must be below `count`."""
    used = np.zeros(count, dtype=np.bool_)
    used[rows] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[rows]


def last_of_each(values: Ints) -> Bools:
    """Returns True where a value occurs for the last time. The values must be sorted."""
    last = np.ones(len(values), dtype=np.bool_)
    last[:-1] = values[1:] != values[:-1]
    return last
