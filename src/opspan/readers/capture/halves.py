"""Units of half a line: widened to whole ones when they are read, so that nothing else knows of them."""

from __future__ import annotations

import numpy as np

from opspan.readers.capture.file import (
    BLOCK,
    HAS_FORWARD,
    HAS_LABEL,
    HAS_OVERLOAD,
    HAS_STACK,
    ITT,
    LIKE,
    MEMORY,
    MODEL,
    RANGE,
    SHORT,
    TORCH,
    VALUE_INT,
    VALUE_MASK,
    Bools,
    Ints,
)

HALF_BYTES = 32
# The flags of a short unit, from its lowest, and what a whole unit has for them.
FLAGS = (VALUE_INT, HAS_FORWARD, HAS_STACK, HAS_OVERLOAD)
LOW = 0xFFFFFFFF
KIND = 0xF
AT_ONCE = 1 << 14  # what the caches hold: a third of the time
HOST = -1 << 32  # the words for a device that is none

# The lower half of a whole unit's first word, for each set of flags.
_BEGINS = np.array(
    [RANGE | TORCH << 8 | sum(flag for bit, flag in enumerate(FLAGS) if some >> bit & 1) << 16 for some in range(16)],
    dtype=np.int64,
)
_TAKES_HALF = np.isin(np.arange(256), (SHORT, LIKE, BLOCK))


class Models:
    """What ranges of a log have in common, as far as it has been read."""

    def __init__(self) -> None:
        self.log = -1
        self.missing = 0  # of all logs: ranges that nothing is known of

    def begin(self, log: int) -> None:
        """Forgets what was told in another one."""
        if log != self.log:
            self.log = log
            self.numbers = np.empty(0, dtype=np.int64)
            self.words = np.empty((0, 8), dtype=np.int64)

    def add(self, numbers: Ints, words: Ints) -> None:
        self.numbers = np.concatenate([self.numbers, numbers])
        self.words = np.concatenate([self.words, words])

    def of(self, numbers: Ints, low: Ints) -> tuple[Ints, Bools]:
        """The models of the units with these numbers, from the lower bits of their own; which of them are known."""
        wanted = numbers - (numbers - low & LOW)
        rows = np.searchsorted(self.numbers, wanted)
        known = rows < len(self.numbers)
        known[known] = self.numbers[rows[known]] == wanted[known]
        self.missing += int(np.count_nonzero(~known))
        return self.words[rows[known]], known


def widened(halves: Ints, into: Ints, first: int, models: Models) -> Ints:
    """Writes the units in these halves of lines (rows of four words) to `into`, rows of eight. The half of each.

    A line is a unit; or its first half is one, and then its second is another, or empty. `first`: the number of the
    first half. A range like one that was not told of becomes a unit that was not written.
    """
    kinds = halves.view(np.uint8)[:, 0]
    begins = kinds != 0
    begins[1::2] &= _TAKES_HALF[kinds[::2]]
    places = np.flatnonzero(begins)
    words = into[: len(places)]
    kinds = kinds[places]
    if (kinds == SHORT).all():
        _widen(halves if len(places) == len(halves) else halves[places], words)
        return places
    is_whole = ~_TAKES_HALF[kinds]
    words[is_whole] = halves.reshape(-1, 8)[places[is_whole] >> 1]
    is_model = kinds == MODEL
    if is_model.any():
        models.add(first + places[is_model], words[is_model])
    for kind, widen in ((SHORT, _widen), (BLOCK, _widen_block)):
        is_it = kinds == kind
        some = np.empty((int(np.count_nonzero(is_it)), 8), dtype=np.int64)
        widen(halves[places[is_it]], some)
        words[is_it] = some
    is_like = kinds == LIKE
    if is_like.any():
        words[is_like] = _alike(halves[places[is_like]], first + places[is_like], models)
    return places


def _widen(all_halves: Ints, all_words: Ints) -> None:
    for begin in range(0, len(all_halves), AT_ONCE):
        words = all_words[begin : begin + AT_ONCE]
        first, starts, third, last = all_halves[begin : begin + AT_ONCE].T
        words[:, 0] = (first & ~LOW) | _BEGINS[first >> 12 & 0xF]
        _widen_range(first, starts, third, last, words)
        words[:, 5] = (first >> 8 & KIND) << 32
        words[:, 6] = third >> 32 & LOW
        words[:, 7] = 0


def _widen_range(first: Ints, starts: Ints, third: Ints, last: Ints, words: Ints) -> None:
    low = third & LOW
    words[:, 1] = starts
    words[:, 2] = np.where(low != 0, starts + ((first >> 16 & 0xFFFF) << 32 | low) - 1, 0)
    words[:, 3] = last >> 32 & LOW
    words[:, 4] = last & LOW


def _alike(halves: Ints, numbers: Ints, models: Models) -> Ints:
    words = np.zeros((len(halves), 8), dtype=np.int64)
    for begin in range(0, len(halves), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        found, known = models.of(numbers[some], halves[some, 0] >> 32 & LOW)
        first, starts, third, last = halves[some][known].T
        found[:, 0] = (found[:, 0] & ~0xFF) | RANGE | (first >> 8 & VALUE_MASK) << 16
        _widen_range(first, starts, third, last, found)
        labelled = found[:, 0] >> 8
        has_parent = (labelled & 0xFF == ITT) & (labelled >> 8 & HAS_LABEL != 0)
        found[np.arange(len(found)), np.where(has_parent, 7, 6)] |= third >> 32 & LOW
        words[some][known] = found
    return words


def _widen_block(halves: Ints, words: Ints) -> None:
    first, times, sizes, totals = halves.T
    words[:, 0] = MEMORY | TORCH << 8 | (first >> 8 & 0xFF) << 16
    words[:, 1] = times
    words[:, 2] = first >> 16 & 0xFFFFFFFFFFFF
    words[:, 3] = sizes
    words[:, 4] = totals
    words[:, 5] = HOST
    words[:, 6:] = 0
