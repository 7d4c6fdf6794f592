"""Chooses the training steps to label, with schedules like torch.profiler's.

Steps are numbered as in torch, from 0. `wait`, `warmup` and `active` steps follow one another `repeat` times.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

Schedule = Callable[[int], "ProfilerAction"]


class ProfilerAction(enum.Enum):
    """The action of a step. Labels are written in RECORD, and in RECORD_AND_SAVE, which is the last active step of a
    cycle."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4  # no schedule returns it: torch.profiler uses it internally


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """Returns a schedule, which is a function from the number of a step to the step's action.

    Args:
        wait: how many steps of a cycle come first, without labels.
        warmup: how many steps follow, also without labels. They are there for torch.profiler, which can use the
            schedule.
        active: how many steps are then labelled.
        repeat: how many cycles there are. With 0, they repeat to the end.
        skip_first: how many steps come before the first cycle.
        skip_first_wait: whether the first cycle has no `wait`.
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise ValueError(
            f"a schedule needs wait, warmup, repeat and skip_first >= 0 and active > 0: "
            f"got wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    cycle = wait + warmup + active

    def action_of(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"a step is counted from 0, got {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step += -skip_first + (wait if skip_first_wait else 0)
        if repeat > 0 and step >= repeat * cycle:
            return ProfilerAction.NONE
        position = step % cycle
        if position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if position < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action_of


def every_step(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def is_active(action: object) -> bool:
    """Returns whether an action labels. The enum may also be torch.profiler's, which has the same names."""
    return getattr(action, "name", None) in ("RECORD", "RECORD_AND_SAVE")
