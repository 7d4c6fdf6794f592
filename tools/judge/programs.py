"""Real programs on a CPU, with and without a plant, recorded by opspan itself.

trials(seeds) -> a Trial for each program and seed: `said` is what opspan.load(recording).findings() gives of the
    program with the plant, `run_ns` how long it took, and `saved_ns` how much less without the plant (medians of runs)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trial import Trial


def trials(seeds: Iterable[int]) -> Iterator[Trial]:
    yield from ()
