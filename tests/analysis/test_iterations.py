"""Iterations: named by torch, by the user, or found."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.frames import ranges, table
from opspan.analysis import nest
from opspan.analysis.iterations import iterations


def found(*rows: tuple | dict, names: list[str] | None = None) -> pl.DataFrame:
    return iterations(nest(ranges(*rows)), None if names is None else pl.Series(names))


def user(name: str, start: int, end: int, **more: object) -> dict:
    return {"name": name, "start_ns": start, "end_ns": end, "kind": "user", **more}


STEPS = [user(f"ProfilerStep#{number}", 100 * number, 100 * number + 90) for number in range(4)]
EPOCHS = [user("epoch", 500 * number, 500 * number + 490) for number in range(3)]


def test_torchs_steps_come_first() -> None:
    rows = found(*STEPS, *EPOCHS)
    assert rows["step"].to_list() == [f"ProfilerStep#{number}" for number in range(4)]
    assert rows["how"].unique().to_list() == ["step"]


def test_names_that_are_given_come_before_them() -> None:
    rows = found(*STEPS, *EPOCHS, names=["epoch"])
    assert rows.select("step", "start_ns", "how").rows() == [
        ("epoch #0", 0, "named"),
        ("epoch #1", 500, "named"),
        ("epoch #2", 1000, "named"),
    ]


def test_a_range_of_the_programs_own_that_repeats_is_the_iteration() -> None:
    inner = [user("inner", start["start_ns"] + 1, start["end_ns"] - 1) for start in EPOCHS]
    rows = found(*EPOCHS, *inner)
    assert rows.select("step", "how").rows() == [(f"epoch #{number}", "repeats") for number in range(3)]


@pytest.mark.parametrize(
    "rows",
    [
        EPOCHS[:2],  # too few
        [("aten::mm", 10 * number, 10 * number + 9) for number in range(5)],  # ops are no iterations
        [user("once", 0, 900), *(user("once", 1000 + 100 * number, 1010 + 100 * number) for number in range(5))],
        [user("tick", 100 * number, 100 * number + 10) for number in range(5)],  # a tenth of the time
    ],
)
def test_what_says_nothing_is_no_iteration(rows: list) -> None:
    assert not found(*rows).height


def test_optimizers_divide_a_run() -> None:
    ends = [("Optimizer.step#SGD.step", 100 * number + 80, 100 * number + 95) for number in range(3)]
    rows = found(("aten::mm", 5, 20), *ends)
    assert rows.select("start_ns", "end_ns", "how").rows() == [
        (5, 95, "optimizer"),
        (95, 195, "optimizer"),
        (195, 295, "optimizer"),
    ]


def test_of_two_optimizers_the_last_ends_the_iteration() -> None:
    ends = [
        row
        for number in range(3)
        for row in (
            ("Optimizer.step#A.step", 100 * number + 60, 100 * number + 70),
            ("Optimizer.step#B.step", 100 * number + 80, 100 * number + 95),
        )
    ]
    assert found(("aten::mm", 5, 20), *ends)["end_ns"].to_list() == [95, 195, 295]


def test_each_process_has_its_own() -> None:
    other = [{**row, "pid": 2} for row in EPOCHS]
    rows = found(*STEPS, *other)
    assert rows.select("pid", "how").unique(maintain_order=True).rows() == [(1, "step"), (2, "repeats")]


def test_outliers_are_longer_than_the_noise() -> None:
    lengths = [90, 91, 89, 90, 140, 92, 90]
    rows = found(*(user(f"ProfilerStep#{n}", 200 * n, 200 * n + length) for n, length in enumerate(lengths)))
    assert rows.filter("is_outlier")["step"].to_list() == ["ProfilerStep#4"]


def test_even_steps_have_no_outliers() -> None:
    lengths = [100, 100, 100, 100, 105]
    rows = found(*(user(f"ProfilerStep#{n}", 200 * n, 200 * n + length) for n, length in enumerate(lengths)))
    assert not rows["is_outlier"].any()


def test_nothing_gives_nothing() -> None:
    assert not found().height


def test_kernels_say_nothing_of_a_process_that_has_no_number_but_named_steps() -> None:
    named = nest(ranges(*({**row, "pid": None} for row in STEPS)))
    names = [f"kernel {number}" for number in (1, 2, 3)] * 5
    kernels = [
        {"name": name, "start_ns": 10 * at, "end_ns": 10 * at + 9, "kind": "kernel"} for at, name in enumerate(names)
    ]
    assert iterations(nest(ranges()), work=table("work", kernels, rank=0))["how"].unique().to_list() == ["kernels"]
    assert iterations(named, work=table("work", kernels, rank=0))["how"].to_list() == ["step"] * 4
