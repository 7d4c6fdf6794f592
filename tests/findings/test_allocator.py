"""The allocator of the simulated device holds to what torch's does, and what it wastes is found."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import opspan
from builders.allocator import Allocator
from builders.job import Job
from builders.job_program import rows_of
from builders.training_files import kineto_files
from builders.training_plan import Run

MB = 1 << 20


def test_a_block_takes_what_was_given_back_and_more_only_if_it_does_not_fit() -> None:
    allocator = Allocator()
    first = allocator.take(10 * MB)
    assert allocator.give_back(10 * MB) == first

    assert allocator.take(6 * MB) == first
    assert allocator.take(4 * MB) == first + 6 * MB
    assert (allocator.allocated, allocator.reserved) == (10 * MB, 10 * MB)

    allocator.give_back(6 * MB)
    allocator.take(8 * MB)
    assert (allocator.allocated, allocator.reserved) == (12 * MB, 18 * MB)


def test_pieces_that_touch_are_one_again_within_a_segment_alone() -> None:
    allocator = Allocator()
    allocator.take(4 * MB)
    allocator.take(4 * MB)
    for _ in range(2):
        allocator.give_back(4 * MB)
    for _ in range(2):
        allocator.take(2 * MB)
        allocator.take(2 * MB)
    for _ in range(4):
        allocator.give_back(2 * MB)

    allocator.take(4 * MB)
    assert allocator.reserved == 8 * MB
    allocator.take(8 * MB)
    assert allocator.reserved == 16 * MB


def test_blocks_never_overlap_and_lie_in_what_is_reserved() -> None:
    random, allocator = Random(0), Allocator()
    blocks: dict[int, int] = {}
    sizes = [random.randrange(1, 20) * MB // 2 for _ in range(6)]
    for _ in range(2_000):
        size = random.choice(sizes)
        if random.random() < 0.5 and size in blocks.values():
            assert blocks.pop(allocator.give_back(size)) == size
        elif len(blocks) < 50:
            blocks[allocator.take(size)] = size
        ordered = sorted(blocks.items())
        assert all(at + taken <= after for (at, taken), (after, _) in pairwise(ordered))
        assert allocator.allocated == sum(blocks.values()) <= allocator.reserved


@pytest.mark.parametrize("job", [Job(steps=8, uneven=0.2), Job(steps=8, micro=2, validate_every=3, recompute=True)])
def test_memory_of_one_size_again_and_again_is_in_no_pieces(job: Job, tmp_path: Path) -> None:
    assert "fragmentation" not in named(job, tmp_path)


def test_memory_whose_size_grows_is_in_pieces(tmp_path: Path) -> None:
    job = Job(steps=8, layers=3, longer=0.1)
    found = named(job, tmp_path)["fragmentation"]

    # Each step takes a segment for each layer, but the first, that has nothing to reuse.
    events = [row for row in rows_of(job).memory if row.bytes > 0]
    assert found["times"] == 3 * 7
    assert found["reserved_bytes"] == events[-1].reserved
    assert found["more_bytes"] == events[-1].reserved - events[2].reserved


def named(job: Job, folder: Path) -> dict[str, dict[str, float]]:
    """The figures of each finding."""
    from opspan.findings import findings

    trace = opspan.load(*kineto_files(folder, Run(job, *rows_of(job)[:4])))
    return {one.rule.id: dict(one.evidence.figures) for one in findings(trace.analysed)}
