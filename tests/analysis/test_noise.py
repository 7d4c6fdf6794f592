"""Whether two runs differ: how often what is alike is told apart, and how often what differs is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opspan
from opspan.analysis.noise import LEVEL, Usual, Values, is_real, usual

PAIRS = 1000
NOISE = 0.025


def made(steps: int, alike: float = 0.0, slower: float = 1.0, seed: int = 0) -> Values:
    """Steps of 10 ms, of PAIRS runs; how much of what each is off by is that of the one before."""
    random = np.random.default_rng([steps, seed])
    news = random.standard_normal((PAIRS, steps)) * (1 - alike**2) ** 0.5
    off = np.empty_like(news)
    off[:, 0] = random.standard_normal(PAIRS)
    for step in range(1, steps):
        off[:, step] = alike * off[:, step - 1] + news[:, step]
    return np.round(1e7 * slower * (1 + NOISE * off))


def told_apart(before: Usual, after: Usual, count: int = 1) -> pl.Series:
    columns = {
        f"{name}_{when}": values
        for when, side in (("before", before), ("after", after))
        for name, values in side._asdict().items()
    }
    return pl.DataFrame(columns).select(real=is_real(count)).to_series()


def rate(steps: int, alike: float = 0.0, slower: float = 1.0) -> float:
    before, after = made(steps, alike), made(steps, alike, slower, seed=1)
    return float(told_apart(usual(before), usual(after)).mean())  # type: ignore[arg-type]  # a number


def chance(level: float, pairs: int = PAIRS) -> float:
    """Returns the highest share of that many pairs that chance gives, at three standard deviations."""
    return level + 3 * (level * (1 - level) / pairs) ** 0.5


@pytest.mark.parametrize("steps", [3, 5, 10, 20, 60, 200])
def test_runs_that_are_alike_are_told_apart_as_rarely_as_is_said(steps: int) -> None:
    assert rate(steps) <= chance(LEVEL)


@pytest.mark.parametrize(("alike", "steps"), [(0.3, 10), (0.5, 20), (0.7, 40), (0.8, 60), (0.9, 60), (0.9, 200)])
def test_steps_that_are_like_those_before_them_are_no_more_often_told_apart(alike: float, steps: int) -> None:
    assert rate(steps, alike) <= chance(LEVEL)


def test_the_more_steps_the_smaller_a_change_that_is_seen() -> None:
    assert rate(60, slower=1.07) == 1.0
    assert rate(60, 0.5, slower=1.07) > 0.95
    found = [rate(steps, slower=1.03) for steps in (5, 20, 60, 200)]
    assert found == sorted(found)
    assert (found[0] < 0.1, found[-1]) == (True, 1.0)


def test_less_than_a_hundredth_is_no_change_however_sure_it_is() -> None:
    assert rate(5000, slower=1.008) == 0.0
    assert rate(5000, slower=1.012) > 0.95


def test_a_few_steps_that_took_long_hide_no_change_and_are_none() -> None:
    before, after = made(20), made(20, slower=1.07)
    before[:, [3, 11]] *= 5
    assert told_apart(usual(before), usual(after)).mean() > 0.9  # type: ignore[operator]  # a number
    assert told_apart(usual(before), usual(made(20, seed=1))).mean() <= chance(LEVEL)  # type: ignore[operator]


def test_of_many_rows_none_is_told_apart_in_nearly_all_comparisons() -> None:
    """Each pair is a row of a table here, of which PAIRS / 50 are compared."""
    found = told_apart(usual(made(20)), usual(made(20, seed=1)), 50)
    tables = found.to_numpy().reshape(-1, 50).any(axis=1)
    assert tables.mean() <= chance(LEVEL, len(tables))


def test_the_distribution_is_student_s_or_more_careful() -> None:
    """t of two-sided 1 %: 5 degrees of freedom 4.032, 10 3.169, 100 2.626."""
    for freedom, most in ((5, 4.032), (10, 3.169), (100, 2.626)):
        for times, is_so in ((0.95, False), (1.06, True)):
            after = 100 + most * times * 2
            rows = pl.DataFrame(
                {
                    "usual_before": 100.0,
                    "usual_after": after,
                    "error_before": 0.0,
                    "error_after": 2.0,
                    "freedom_before": 1.0,
                    "freedom_after": float(freedom),
                }
            )
            assert rows.select(is_real()).item() is is_so


# Kernels of these files run over and over, each for as long as the device, its clock and its neighbours let it.
REAL = (
    "kineto/resnet50_torch1.8.pt.trace.json.gz",
    "kineto/ns_resolution.pt.trace.json.gz",
    "nsys/torch_lm_2025.sqlite",
    "rocpd/torch_autograd.rpd",
)
_LEAST, _MOST, _BLOCK = 40, 200, 5


def dealt(times: list[int], random: np.random.Generator) -> tuple[Usual, Usual]:
    """The two halves of one run: blocks of it, for what follows each other is alike, dealt at random."""
    blocks = np.array_split(np.array(times), len(times) // _BLOCK)
    order = random.permutation(len(blocks))
    halves = (np.sort(order[: len(blocks) // 2]), np.sort(order[len(blocks) // 2 :]))
    first, second = (usual(np.concatenate([blocks[one] for one in half])[np.newaxis]) for half in halves)
    return first, second


def test_halves_of_real_runs_are_told_apart_as_rarely(traces_dir: Path) -> None:
    runs: list[list[int]] = []
    for path in (traces_dir / name for name in REAL):
        if not path.exists():
            pytest.skip(f"{path.name} is not among the recorded traces")
        work = opspan.load(path).work.filter(kind="kernel").sort("start_ns")
        times = work.group_by("name", "grid_x", "stream_id", maintain_order=True).agg(
            ns=pl.col("end_ns") - pl.col("start_ns")
        )
        runs += [one[:_MOST] for one in times["ns"].to_list() if len(one) >= _LEAST]
    random = np.random.default_rng(0)
    pairs = [dealt(runs[pair % len(runs)], random) for pair in range(PAIRS)]
    before, after = (
        Usual(*(np.concatenate(values) for values in zip(*sides, strict=True))) for sides in zip(*pairs, strict=True)
    )
    assert len(runs) >= 100
    assert told_apart(before, after).mean() <= chance(LEVEL)  # type: ignore[operator]  # a number
