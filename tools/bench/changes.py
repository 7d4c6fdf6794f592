"""Decides whether a figure has become worse from one commit to another. Both commits were measured in turn on one
machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from figures import Figure, Key

LEAST = 0.03  # the smallest change that counts, as a share


@dataclass(frozen=True)
class Change:
    """The values of a figure in the runs of two commits. Shares are shares of the larger of the two medians."""

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
        """The largest difference between two values of the same commit, as a share."""
        return max(max(values) - min(values) for values in (self.old, self.new)) / self._scale

    @property
    def _is_beyond_noise(self) -> bool:
        is_apart = min(self.new) > max(self.old) or max(self.new) < min(self.old)
        return is_apart and abs(self.worse_by) > max(LEAST, self.noise)

    @property
    def _scale(self) -> float:
        return max(abs(statistics.median(values)) for values in (self.old, self.new)) or 1.0


def changes(old: Sequence[Sequence[Figure]], new: Sequence[Sequence[Figure]]) -> list[Change]:
    """Returns the change of every figure that both commits have. `old` and `new` contain a list of figures for each
    run."""
    before, after = _by_key(old), _by_key(new)
    return [
        Change(after[key][0], [one.value for one in figures], [one.value for one in after[key]])
        for key, figures in before.items()
        if key in after
    ]


def _by_key(runs: Sequence[Sequence[Figure]]) -> Mapping[Key, list[Figure]]:
    by_key: dict[Key, list[Figure]] = {}
    for run in runs:
        for one in run:
            by_key.setdefault(one.key, []).append(one)
    return by_key
