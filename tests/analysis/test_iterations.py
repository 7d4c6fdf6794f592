"""Iterations: named by torch, by the user, or found."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.frames import ranges
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


DECODE, PREFILL = "step[DECODE bs=32]", "step[EXTEND bs=2 toks=4096]"
SERVED = [
    user(PREFILL, 0, 400),
    *(user(DECODE, 100 * number, 100 * number + 90, is_async=True) for number in range(4, 8)),
]


def test_labels_of_a_serving_engine_are_steps() -> None:
    for around in ([], EPOCHS):  # other ranges that repeat do not matter
        rows = found(*SERVED, *around)
        assert rows["step"].to_list() == [PREFILL, *(f"{DECODE} #{number}" for number in range(4))]
        assert rows["how"].unique().to_list() == ["engine"]


def test_one_label_is_enough_and_nearly_a_label_is_none() -> None:
    assert found(SERVED[0])["how"].to_list() == ["engine"]
    assert not found({**SERVED[0], "name": f"my {PREFILL}"}).height


def test_labels_of_an_engine_are_no_steps_beside_those_of_torch_or_names_that_are_given() -> None:
    other = [{**row, "pid": 2} for row in SERVED[:1]]
    rows = found(*STEPS, *SERVED, *other)
    assert rows.select("pid", "how").unique(maintain_order=True).rows() == [(1, "step"), (2, "engine")]
    assert found(*SERVED, *EPOCHS, names=["epoch"])["how"].unique().to_list() == ["named"]


def test_only_the_outermost_label_is_a_step() -> None:
    rows = found(user(PREFILL, 0, 400), user("between", 10, 390), user(DECODE, 20, 300), user(DECODE, 500, 600))
    assert rows.select("step", "start_ns").rows() == [(PREFILL, 0), (DECODE, 500)]


def test_outliers_of_an_engine_are_longer_than_steps_with_the_same_work() -> None:
    lengths = [90, 91, 89, 90, 140, 92, 90]
    at = [user(DECODE, 1000 * number, 1000 * number + length) for number, length in enumerate(lengths)]
    long = [user(PREFILL, 1000 * number + 200, 1000 * number + 900) for number in range(5)]
    once = [user("step[EXTEND bs=1 toks=9000]", 9000, 15000)]
    rows = found(*at, *long, *once)
    assert rows.filter("is_outlier")["step"].to_list() == [f"{DECODE} #4"]


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


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (LOADER, "user"),
        ("net", "module"),
        ("forward", "user"),
        ("DistributedDataParallel.forward", "user"),
        ("profile2.py:314", "user"),
        ("{'mod': 'torch', 'op': 'mul'}", "user"),
        ("Model", "script"),
    ],
)
def test_a_part_of_a_step_that_comes_in_each_is_none(name: str, kind: str) -> None:
    assert not found(*(user(name, 100 * number, 100 * number + 90, kind=kind) for number in range(5))).height


def test_names_that_differ_in_a_number_are_one_name() -> None:
    rows = found(*(user(f"step {number + 3} of 8", 100 * number, 100 * number + 90) for number in range(4)))
    assert rows.select("step", "how").rows() == [(f"step {number + 3} of 8", "repeats") for number in range(4)]


def training(*, is_in_range: bool) -> list[dict]:
    """Ranges that take most of the time, and an optimizer in each of them, or in none."""
    rows = []
    for number in range(4):
        begin = 100 * number
        at = begin + 80 if is_in_range else begin + 92
        rows += [user("turn", begin, begin + 90), user("Optimizer.step#SGD.step", at, at + 5)]
    return rows


def test_a_range_that_holds_the_optimizer_is_the_step() -> None:
    rows = found(user("start", -5000, -10), *training(is_in_range=True))
    assert rows.select("step", "how").rows() == [(f"turn #{number}", "repeats") for number in range(4)]


def test_a_range_without_the_optimizer_is_none() -> None:
    assert found(*training(is_in_range=False))["how"].to_list() == ["optimizer"] * 4


def test_micro_steps_of_which_one_in_four_has_the_optimizer_are_none() -> None:
    turns = [user("turn", 100 * number, 100 * number + 90) for number in range(16)]
    optimizers = [user("Optimizer.step#SGD.step", 400 * number + 380, 400 * number + 385) for number in range(4)]
    assert found(*turns, *optimizers)["how"].to_list() == ["optimizer"] * 4


def test_without_optimizers_backwards_tell_the_training() -> None:
    turns = [user("turn", 100 * number, 100 * number + 20) for number in range(4)]
    backwards = [user("AddBackward0", 100 * number + 10, 100 * number + 15, kind="backward") for number in range(4)]
    assert found(*turns, *backwards)["how"].to_list() == ["repeats"] * 4
    assert not found(*(user("idle", 100 * number + 30, 100 * number + 95) for number in range(4)), *backwards).height


# --- steps of which only the ends are known

OPS = ["embedding", "mm", "add", "relu", "mm", "nll_loss", "zero", "copy"]


def ended(number: int, time: int) -> dict:
    return {"name": f"end of ProfilerStep#{number}", "start_ns": time, "is_mark": True, "kind": "step"}


def step_ops(begin: int) -> list[dict]:
    return [user(f"aten::{name}", begin + 10 * at, begin + 10 * at + 9, kind="op") for at, name in enumerate(OPS)]


def marked(*before: tuple[int, list[dict]], again_at: int = 6) -> list[dict]:
    """Six steps of 100 ns, each with `OPS` in its first 80 ns; `before`: what comes before the ops of a step, which
    takes 1000 ns more then; `again_at`: the first step of a second session."""
    rows, begin, extra = [], 0, dict(before)
    for number in range(6):
        if number in extra:
            rows += [
                {**row, "start_ns": begin + row["start_ns"], "end_ns": begin + row["end_ns"]} for row in extra[number]
            ]
            begin += 1000
        rows += [*step_ops(begin), ended(number % again_at, begin + 100)]
        begin += 100
    return rows


def test_each_end_that_a_session_was_told_is_a_step() -> None:
    rows = found(*marked())
    assert rows.select("step", "start_ns", "end_ns", "how").rows() == [
        (f"ProfilerStep#{number}", 100 * number, 100 * number + 100, "step") for number in range(6)
    ]


def test_start_up_is_in_no_step() -> None:
    start = [user(f"aten::{name}", 100 * at, 100 * at + 90, kind="op") for at, name in enumerate(["rand", "mm", "add"])]
    rows = found(*marked((0, start)))
    assert rows.select("start_ns", "end_ns").rows()[:2] == [(1000, 1100), (1100, 1200)]


def test_what_the_program_named_between_two_steps_is_in_none() -> None:
    rows = found(*marked((3, [user("evaluate", 5, 900)])))
    assert rows["start_ns"].to_list()[3] == 1300
    assert (rows["end_ns"] - rows["start_ns"]).to_list() == [100] * 6


def test_a_second_session_of_the_process_has_a_start_up_too() -> None:
    start = [user("aten::rand", 10 * at, 10 * at + 9, kind="op") for at in range(3)]
    rows = found(*marked((3, start), again_at=3))
    assert rows["step"].to_list() == [f"ProfilerStep#{number} #{session}" for session in (0, 1) for number in range(3)]
    assert rows["start_ns"].to_list()[3] == 1300


def test_an_evaluation_without_a_name_is_told_by_how_much_is_done_without_a_backward() -> None:
    passes = [row for number in range(4) for row in step_ops(100 * number)]
    assert found(*marked((3, passes)))["start_ns"].to_list()[3] == 1300
    with_backward = [*passes, user("AddBackward0", 450, 460, kind="backward")]
    assert found(*marked((3, with_backward)))["start_ns"].to_list()[3] == 300


def test_a_little_more_at_the_begin_of_a_step_stays_in_it() -> None:
    log = [user("aten::item", 5, 900, kind="op")]
    assert found(*marked((3, log)))["start_ns"].to_list()[3] == 300


def test_of_micro_steps_none_is_cut_off() -> None:
    rows = []
    for number in range(5):
        begin = 1000 * number + (500 if number else 0)
        micro = [row for part in range(4) for row in step_ops(begin + 200 * part)]
        rows += [*([user("aten::rand", 0, 5, kind="op")] if not number else []), *micro, ended(number, begin + 990)]
    assert found(*rows)["start_ns"].to_list()[1] == 990


def test_the_optimizers_first_step_begins_with_its_own_work() -> None:
    start = [user("aten::rand", 10 * at, 10 * at + 9, kind="op") for at in range(40)]
    steps = [
        row
        for begin in range(1000, 1500, 100)
        for row in [*step_ops(begin), user("Optimizer.step#SGD.step", begin + 85, begin + 95)]
    ]
    rows = found(*start, *steps)
    assert rows["start_ns"].to_list() == [1000, 1095, 1195, 1295, 1395]


def test_the_range_that_step_opens_for_a_step_that_never_comes_is_none() -> None:
    ops = [user("aten::mm", row["start_ns"] + 1, row["end_ns"] - 1, kind="op") for row in STEPS]
    last = user("ProfilerStep#4", 400, 401)
    assert found(*STEPS, *ops, last)["step"].to_list() == [f"ProfilerStep#{number}" for number in range(4)]
    assert found(*STEPS, last).height == 5  # nothing is in the others either
