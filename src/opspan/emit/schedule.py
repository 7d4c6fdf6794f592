"""Chooses the training steps to label, with schedules like torch.profiler's.

Steps are numbered as in torch, from 0. `wait`, `warmup` and `active` steps follow one another `repeat` times.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any

from opspan.errors import BadSchedule

Schedule = Callable[[int], "ProfilerAction"]


class ProfilerAction(enum.Enum):
    """The action of a step. Steps are labelled under RECORD and RECORD_AND_SAVE. RECORD_AND_SAVE is the action of the
    last active step of a cycle. A member equals torch's member of the same name."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4  # not returned by a schedule: torch.profiler uses it internally

    def __eq__(self, other: object) -> bool:
        return type(other).__name__ == "ProfilerAction" and getattr(other, "name", None) == self.name

    def __hash__(self) -> int:
        return hash(self.name)  # like torch's, so that a member and its equal in torch are the same key of a dictionary


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Schedule:
    """Returns a schedule, which is a function from the number of a step to the step's action. The actions are torch's
    own if torch was imported.

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
        raise BadSchedule(
            f"a schedule needs wait, warmup, repeat and skip_first >= 0 and active > 0: "
            f"got wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    cycle = wait + warmup + active

    def action_of(step: int) -> ProfilerAction:
        if step < 0:
            raise BadSchedule(f"a step is counted from 0, got {step}")
        actions: type[ProfilerAction] = _actions()
        if step < skip_first:
            return actions.NONE
        step += -skip_first + (wait if skip_first_wait else 0)
        if repeat > 0 and step >= repeat * cycle:
            return actions.NONE
        position = step % cycle
        if position < wait:
            return actions.NONE
        if position < wait + warmup:
            return actions.WARMUP
        return actions.RECORD if position < cycle - 1 else actions.RECORD_AND_SAVE

    return action_of


def every_step(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def _actions() -> Any:
    """Returns torch's enum if torch.profiler was imported, because scripts may compare actions with torch's by `is`.
    Otherwise returns opspan's."""
    profiler = sys.modules.get("torch.profiler")
    return ProfilerAction if profiler is None else profiler.ProfilerAction


def is_active(action: object) -> bool:
    """Returns whether steps with this action are labelled. The enum may also be torch.profiler's, which has the
    same names."""
    return getattr(action, "name", None) in ("RECORD", "RECORD_AND_SAVE")
