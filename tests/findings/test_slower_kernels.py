"""Kernels that take longer later in a run than the same kernels before."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from findings.made import STEP, Case, Made, case_tests, each

STEPS = 64
SIZES = "[[64, 64], [64, 64]]"


def same(step: int) -> dict[str, int]:
    return {"grid_x": 8, "grid_y": 1, "grid_z": 1}


def running(
    length: Callable[[int], int],
    grid: Callable[[int], dict[str, int]] = same,
    sizes: Callable[[int], str | None] = lambda step: SIZES,
    steps: int = STEPS,
    waits: bool = True,
) -> Made:
    """A kernel in each step, that the host waits for."""
    made = Made(steps).range("aten::mm", STEP - 30, 15, [steps - 1])
    for step in range(steps):
        made.range("aten::mm", -30, 15, [step], sizes=sizes(step))
        made.launch(-25, "gemm", 0, length(step), [step], **grid(step))
        if waits:
            made.call("cudaStreamSynchronize", 0, length(step) + 5, [step])
    return made


def jump(to: int, at: int = 32, before: int = 400) -> Callable[[int], int]:
    return lambda step: before if step < at else to


def noise(share: float, seed: int) -> Callable[[int], int]:
    random = Random(seed)
    lengths = [int(400 * max(random.gauss(1, share), 0.5)) for _ in range(STEPS)]
    return lengths.__getitem__


CASES = [
    Case(
        "slower-kernels",
        lambda: running(jump(500)),
        3200,  # 100 in each of half of the steps
        0.05,
        {"more_ns": 3200, "times": 1.25, "kernels": 32, "slower_share": 1.0, "since_share": 32_000 / 63_500},
        {
            "9% longer": lambda: running(jump(436)),
            "2.9% of the run": lambda: running(jump(458)),
            "quicker later": lambda: running(jump(400, before=500)),
            "other sizes": lambda: running(
                jump(500), sizes=lambda step: SIZES if step < 32 else "[[99, 64], [64, 64]]"
            ),
            "another grid": lambda: running(
                jump(500), lambda step: {"grid_x": 8 + step // 32, "grid_y": 1, "grid_z": 1}
            ),
            "31 times": lambda: running(jump(600, 15), steps=31),
            "beside another": lambda: running(jump(500)).work("other", 100, 200, stream_id=9),
            "the host set the pace": lambda: running(jump(500), waits=False),
        },
        ops=("aten::mm",),
        # Each is launched at the end of the step before.
        steps=("ProfilerStep#31", "ProfilerStep#32", "ProfilerStep#33"),
        ranges=each(0, 500, range(32, 42)),
        words={"kernel": "gemm", "since": "ProfilerStep#31", "which": "the device as a whole"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_noise_is_no_change(share: float, seed: int) -> None:
    assert "slower-kernels" not in running(noise(share, seed)).findings()


@pytest.mark.parametrize("seed", range(8))
def test_batches_that_differ_are_no_change(seed: int) -> None:
    # All kernels of a step are longer together; of many short steps no eighth is like another, but by chance.
    random = Random(seed)
    factors = [1 + 0.2 * (2 * random.random() - 1) for _ in range(8)]
    lengths = [400 * min(factors)] * 8 + [400 * factor for factor in factors for _ in range(8)]
    made = Made(9)
    for step in range(9):
        for nth in range(8):
            at, length = 110 * nth, int(lengths[8 * step + nth] / 5)
            made.range("aten::mm", at - 30, 15, [step], sizes=SIZES)
            made.launch(at - 25, "gemm", at, length, [step], **same(0))
            made.call("cudaStreamSynchronize", at, length + 5, [step])
    assert "slower-kernels" not in made.findings()


def test_a_drift_counts_from_the_quickest_step_on() -> None:
    found = running(lambda step: 400 + 4 * step).findings()["slower-kernels"].evidence
    # The first step has the first two of them: it ran the first, and launched the second.
    assert found.words["since"] == "ProfilerStep#1"
    assert found.at_stake_ns == sum(400 + 4 * step - 402 for step in range(2, STEPS))


def test_kernels_that_run_too_seldom_are_as_slow_as_the_others_of_their_step() -> None:
    made = running(jump(500)).launch(700, "rare", 720, 100, range(31)).launch(700, "rare", 720, 125, range(32, STEPS))
    made.rows["work"] = [
        row | {"name": f"rare {row['start_ns'] // 16_000}"} if row["name"] == "rare" else row
        for row in made.rows["work"]
    ]
    found = made.call("cudaStreamSynchronize", 715, 140).findings()["slower-kernels"].evidence
    assert found.at_stake_ns == 32 * (100 + 25)


def test_without_sizes_a_kernel_is_the_same_at_the_same_place_of_a_step() -> None:
    # Each step has a short one and a long one of the same name and grid.
    made = running(jump(500), sizes=lambda step: None).launch(580, "gemm", 600, 200, **same(0))
    found = made.findings()["slower-kernels"].evidence
    # 62 steps launch both, the first three of them and the last one. The first that is slower is of an eighth most of
    # which is not.
    slower_ns = 30 * 400 + 32 * 500
    assert (found.at_stake_ns, found.figures["slower_share"]) == (31 * 100, slower_ns / (slower_ns + 62 * 200))
    # In steps that have more of these kernels, they cannot be matched with those of other steps.
    other = running(jump(500), sizes=lambda step: None).launch(580, "gemm", 600, 200, range(32, STEPS), **same(0))
    assert "slower-kernels" not in other.findings()


def test_steps_that_are_outliers_are_looked_at() -> None:
    # A third of the steps take longer, and their kernels.
    made = Made(STEPS, dict.fromkeys(range(40, STEPS), 200))
    made.range("aten::mm", STEP + 170, 15, [STEPS - 1])
    made.range("aten::mm", -30, 15, sizes=SIZES).call("cudaStreamSynchronize", 0, 900)
    made.launch(-25, "gemm", 0, 400, range(40), **same(0)).launch(-25, "gemm", 0, 600, range(40, STEPS), **same(0))
    assert made.findings()["slower-kernels"].evidence.at_stake_ns == (STEPS - 40) * 200
