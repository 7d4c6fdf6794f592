"""Whether a figure has become worse: one commit's values beside another's, taken in turn on one machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from figures import Figure, Key

LEAST = 0.03  # less than this nobody would do anything about


@dataclass(frozen=True)
class Change:
    """Of a figure's value, run by run, in one commit and in the next. Shares are of the larger of both medians."""

    figure: Figure
    old: Sequence[float]
    new: Sequence[float]

    @property
    def is_worse(self) -> bool:
        return self._is_beyond_noise and self.worse_by > 0

    @property
    def is_better(self) -> bool:
        return self._is_beyond_noise and self.worse_by < 0

    @property
    def worse_by(self) -> float:
        shift = statistics.median(self.new) - statistics.median(self.old)
        return (-shift if self.figure.least is not None else shift) / self._scale

    @property
    def noise(self) -> float:
        """How far the values of one commit lie apart, at most."""
        return max(max(values) - min(values) for values in (self.old, self.new)) / self._scale

    @property
    def _is_beyond_noise(self) -> bool:
        is_apart = min(self.new) > max(self.old) or max(self.new) < min(self.old)
        return is_apart and abs(self.worse_by) > max(LEAST, self.noise)

    @property
    def _scale(self) -> float:
        return max(abs(statistics.median(values)) for values in (self.old, self.new)) or 1.0


def changes(old: Sequence[Sequence[Figure]], new: Sequence[Sequence[Figure]]) -> list[Change]:
    """Of every figure that both commits have. A list a run."""
    before, after = _by_key(old), _by_key(new)
    return [
        Change(after[key][0], [one.value for one in found], [one.value for one in after[key]])
        for key, found in before.items()
        if key in after
    ]


def _by_key(runs: Sequence[Sequence[Figure]]) -> Mapping[Key, list[Figure]]:
    found: dict[Key, list[Figure]] = {}
    for run in runs:
        for one in run:
            found.setdefault(one.key, []).append(one)
    return found
