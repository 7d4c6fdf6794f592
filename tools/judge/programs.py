"""Real programs on a CPU, with and without a plant, recorded by opspan itself.

trials(seeds) -> a Trial for each program and seed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trial import Trial


def trials(seeds: Iterable[int]) -> Iterator[Trial]:
    yield from ()
