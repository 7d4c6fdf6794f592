"""The part of a run that is in no step: by hand, and against a look at each nanosecond."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from analysis.frames import ranges
from opspan.analysis import nest
from opspan.analysis.outside import between, outside

WHERE = {"rank": 0, "pid": 1}


def frame(*ends: tuple[int, int]) -> pl.DataFrame:
    rows = [{**WHERE, "start_ns": start, "end_ns": end} for start, end in ends]
    schema = {"rank": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def test_start_up_between_and_after_are_told_apart() -> None:
    found = outside(frame((0, 1000)), frame((300, 400), (400, 500), (650, 750)))
    assert found.drop("rank", "pid").rows() == [(1000, 300, 150, 250)]


def test_a_process_without_steps_has_no_row() -> None:
    assert not outside(frame((0, 1000)), frame()).height


def test_what_the_program_named_between_steps_is_told_by_its_name() -> None:
    def user(name: str, start: int, end: int) -> dict[str, object]:
        return {"name": name, "start_ns": start, "end_ns": end, "kind": "user"}

    rows = nest(
        ranges(
            user("start", 0, 100),
            user("in a step", 310, 390),
            user("evaluate", 510, 600),
            user("batch", 520, 530),  # in another range
            user("Optimizer.zero_grad#SGD.zero_grad", 600, 610),
            user("checkpoint", 620, 700),  # goes on in the next step
            ("aten::mm", 610, 620),
            user("end", 800, 900),
        )
    )
    found = between(frame((300, 400), (400, 500), (650, 750)), rows)
    assert dict(found.iter_rows()) == {"evaluate": 90, "checkpoint": 30}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=6), st.integers(60, 99))
def test_each_moment_is_in_one_place(steps: list[tuple[int, int]], until: int) -> None:
    spans = [(start, start + ns) for start, ns in steps]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    whole = (0, max(until, last))
    found = outside(frame(whole), frame(*spans)).row(0, named=True)
    inside = sum(any(start <= moment < end for start, end in spans) for moment in range(*whole))
    assert (found["startup_ns"], found["after_ns"]) == (first, whole[1] - last)
    assert found["between_ns"] == whole[1] - found["startup_ns"] - found["after_ns"] - inside
