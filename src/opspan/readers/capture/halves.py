"""Widens 32-byte units (half units) to 64-byte units (whole units) when they are read. Other modules see only whole
units."""

from __future__ import annotations

import numpy as np

from opspan.readers.capture import layout
from opspan.readers.capture.file import Bools, Ints

HALF_BYTES = 32
# A short unit (a kind of half unit) has four flag bits. From the lowest on, the bits mean these flags of a whole unit.
FLAGS = (layout.VALUE_INT, layout.HAS_FORWARD, layout.HAS_STACK, layout.HAS_OVERLOAD)
LOW = 0xFFFFFFFF
KIND = 0xF
AT_ONCE = 1 << 14  # number of half units to widen at once; more do not fit into the CPU's caches, and take 3x as long
HOST = -1 << 32  # word 5 of a whole MEMORY unit, if the memory is the host's

# The lower 32 bits of a whole unit's first word, for each value of a short unit's flag bits.
_BEGINS = np.array(
    [
        layout.RANGE | layout.TORCH << 8 | sum(flag for bit, flag in enumerate(FLAGS) if some >> bit & 1) << 16
        for some in range(16)
    ],
    dtype=np.int64,
)
_TAKES_HALF = np.isin(np.arange(256), (layout.SHORT, layout.LIKE, layout.BLOCK))


class Models:
    """The model units read so far from a log. A model holds words that several ranges of the log have in common."""

    def __init__(self) -> None:
        self.log = -1
        self.missing = 0  # number of ranges, in all logs, whose model is not in the file

    def begin(self, log: int) -> None:
        """Prepares for the units of a log: forgets the models of any other log."""
        if log != self.log:
            self.log = log
            self.numbers = np.empty(0, dtype=np.int64)
            self.words = np.empty((0, 8), dtype=np.int64)

    def add(self, numbers: Ints, words: Ints) -> None:
        self.numbers = np.concatenate([self.numbers, numbers])
        self.words = np.concatenate([self.words, words])

    def of(self, numbers: Ints, low: Ints) -> tuple[Ints, Bools]:
        """Finds the model of each unit. Returns the words of the models that are known, and for each unit whether its
        model is known. `numbers`: unit numbers. `low`: the lower 32 bits of the number of each unit's model."""
        wanted = numbers - (numbers - low & LOW)
        rows = np.searchsorted(self.numbers, wanted)
        known = rows < len(self.numbers)
        known[known] = self.numbers[rows[known]] == wanted[known]
        self.missing += int(np.count_nonzero(~known))
        return self.words[rows[known]], known


def widen_into(halves: Ints, into: Ints, first: int, models: Models) -> Ints:
    """Writes the units in `halves` (rows of 4 words) to `into` (rows of 8 words). Returns for each unit the index of
    its first row in `halves`.

    A line of 64 bytes holds one whole unit, one half unit, or two half units. `first`: the unit number of the first
    row. A range whose model is missing becomes a unit of kind 0, which is empty.
    """
    kinds = halves.view(np.uint8)[:, 0]
    begins = kinds != 0
    begins[1::2] &= _TAKES_HALF[kinds[::2]]
    places = np.flatnonzero(begins)
    words = into[: len(places)]
    kinds = kinds[places]
    if (kinds == layout.SHORT).all():
        _widen(halves if len(places) == len(halves) else halves[places], words)
        return places
    is_whole = ~_TAKES_HALF[kinds]
    words[is_whole] = halves.reshape(-1, 8)[places[is_whole] >> 1]
    is_model = kinds == layout.MODEL
    if is_model.any():
        models.add(first + places[is_model], words[is_model])
    for kind, widen in ((layout.SHORT, _widen), (layout.BLOCK, _widen_block)):
        has_kind = kinds == kind
        some = np.empty((int(np.count_nonzero(has_kind)), 8), dtype=np.int64)
        widen(halves[places[has_kind]], some)
        words[has_kind] = some
    is_like = kinds == layout.LIKE
    if is_like.any():
        words[is_like] = _widen_like(halves[places[is_like]], first + places[is_like], models)
    return places


def _widen(all_halves: Ints, all_words: Ints) -> None:
    for begin in range(0, len(all_halves), AT_ONCE):
        words = all_words[begin : begin + AT_ONCE]
        first, starts, third, last = all_halves[begin : begin + AT_ONCE].T
        words[:, 0] = (first & ~LOW) | _BEGINS[first >> 12 & 0xF]
        _widen_range(first, starts, third, last, words)
        kinds = first >> 8 & KIND
        words[kinds == layout.PYTHON, 0] += layout.CALL - layout.RANGE
        words[:, 5] = kinds << 32
        words[:, 6] = third >> 32 & LOW
        words[:, 7] = 0


def _widen_range(first: Ints, starts: Ints, third: Ints, last: Ints, words: Ints) -> None:
    low = third & LOW
    words[:, 1] = starts
    words[:, 2] = np.where(low != 0, starts + ((first >> 16 & 0xFFFF) << 32 | low) - 1, 0)
    words[:, 3] = last >> 32 & LOW
    words[:, 4] = last & LOW


def _widen_like(halves: Ints, numbers: Ints, models: Models) -> Ints:
    words = np.zeros((len(halves), 8), dtype=np.int64)
    for begin in range(0, len(halves), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        units, known = models.of(numbers[some], halves[some, 0] >> 32 & LOW)
        first, starts, third, last = halves[some][known].T
        units[:, 0] = (units[:, 0] & ~0xFF) | layout.RANGE | (first >> 8 & layout.VALUE_MASK) << 16
        _widen_range(first, starts, third, last, units)
        source_and_flags = units[:, 0] >> 8
        has_parent = (source_and_flags & 0xFF == layout.ITT) & (source_and_flags >> 8 & layout.HAS_LABEL != 0)
        units[np.arange(len(units)), np.where(has_parent, 7, 6)] |= third >> 32 & LOW
        words[some][known] = units
    return words


def _widen_block(halves: Ints, words: Ints) -> None:
    first, times, sizes, totals = halves.T
    words[:, 0] = layout.MEMORY | layout.TORCH << 8 | (first >> 8 & 0xFF) << 16
    words[:, 1] = times
    words[:, 2] = first >> 16 & 0xFFFFFFFFFFFF
    words[:, 3] = sizes
    words[:, 4] = totals
    words[:, 5] = HOST
    words[:, 6:] = 0
