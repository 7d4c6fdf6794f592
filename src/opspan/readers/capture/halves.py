"""Short units, which are half a line: widened to whole ones when they are read, so that nothing else knows of them."""

from __future__ import annotations

import numpy as np

from opspan.readers.capture.file import (
    HAS_FORWARD,
    HAS_OVERLOAD,
    HAS_STACK,
    RANGE,
    SHORT,
    TORCH,
    VALUE_INT,
    Ints,
)

HALF_BYTES = 32
# The flags of a short unit, from its lowest, and what a whole unit has for them.
FLAGS = (VALUE_INT, HAS_FORWARD, HAS_STACK, HAS_OVERLOAD)
LOW = 0xFFFFFFFF
KIND = 0xF
AT_ONCE = 1 << 14  # what the caches hold: a third of the time

# The lower half of a whole unit's first word, for each set of flags.
_BEGINS = np.array(
    [RANGE | TORCH << 8 | sum(flag for bit, flag in enumerate(FLAGS) if some >> bit & 1) << 16 for some in range(16)],
    dtype=np.int64,
)


def widened(halves: Ints, into: Ints) -> Ints:
    """Writes the units in these halves of lines (rows of four words) to `into`, rows of eight. The half of each.

    A line is a unit; or its first half is a short one, and then its second is another, or empty.
    """
    kinds = halves.view(np.uint8)[:, 0]
    begins = kinds != 0
    begins[1::2] &= kinds[::2] == SHORT
    places = np.flatnonzero(begins)
    words = into[: len(places)]
    is_short = kinds[places] == SHORT
    if is_short.all():
        _widen(halves if len(places) == len(halves) else halves[places], words)
        return places
    lines = halves.reshape(-1, 8)
    words[~is_short] = lines[places[~is_short] >> 1]
    some = np.empty((int(np.count_nonzero(is_short)), 8), dtype=np.int64)
    _widen(halves[places[is_short]], some)
    words[is_short] = some
    return places


def _widen(all_halves: Ints, all_words: Ints) -> None:
    for begin in range(0, len(all_halves), AT_ONCE):
        words = all_words[begin : begin + AT_ONCE]
        first, starts, third, last = all_halves[begin : begin + AT_ONCE].T
        low = third & LOW
        words[:, 0] = (first & ~LOW) | _BEGINS[first >> 12 & 0xF]
        words[:, 1] = starts
        words[:, 2] = np.where(low != 0, starts + ((first >> 16 & 0xFFFF) << 32 | low) - 1, 0)
        words[:, 3] = last >> 32 & LOW
        words[:, 4] = last & LOW
        words[:, 5] = (first >> 8 & KIND) << 32
        words[:, 6] = third >> 32 & LOW
        words[:, 7] = 0
