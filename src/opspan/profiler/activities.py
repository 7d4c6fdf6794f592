"""Parses the argument `activities=` in torch's form, with torch's checks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opspan.emit import device
from opspan.errors import NothingToProfile

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


def parse_activities(requested: Iterable[object] | None) -> set[ProfilerActivity]:
    """Returns the activities. Each of them may occur once. A mapping lists kinds of an activity, and an empty list
    turns the activity off."""
    from torch.profiler import ProfilerActivity, supported_activities

    if requested is None:
        return set(supported_activities())
    flags: dict[ProfilerActivity, bool] = {}
    for item in requested:
        if not isinstance(item, (ProfilerActivity, Mapping)):
            raise TypeError(f"activities={item!r}: expected a ProfilerActivity or a dict of them")
        kinds = dict(item) if isinstance(item, Mapping) else {item: None}
        for activity, names in kinds.items():
            if activity in flags:
                raise ValueError(f"activities= has {activity} more than once")
            flags[activity] = names is None or len(names) > 0
    if not flags:
        raise NothingToProfile("activities= is empty; expected at least one ProfilerActivity")
    return {activity for activity, is_wanted in flags.items() if is_wanted}


def has_devices(activities: set[ProfilerActivity], stacklevel: int) -> bool:
    """Returns whether a requested device exists. For a missing device, warns in torch's words."""
    from torch.profiler import ProfilerActivity

    requested = activities - {ProfilerActivity.CPU}
    if not requested:
        return False
    there = device.activities()
    for missing in sorted(activity.name for activity in requested - there):
        warnings.warn(
            f"{missing} is not available, disabling {missing} profiling", UserWarning, stacklevel=stacklevel + 1
        )
    return bool(requested & there)
