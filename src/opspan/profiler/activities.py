"""What `activities=` asks for: torch's form of it, checked as torch checks it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opspan.emit import device

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


def parsed(asked: Iterable[object] | None) -> set[ProfilerActivity]:
    """The activities; each may be asked for once. A mapping names kinds of one, an empty list is none of them."""
    from torch.profiler import ProfilerActivity, supported_activities

    if asked is None:
        return set(supported_activities())
    found: dict[ProfilerActivity, bool] = {}
    for item in asked:
        if not isinstance(item, (ProfilerActivity, Mapping)):
            raise TypeError(f"activities={item!r}: expected a ProfilerActivity or a dict of them")
        kinds = dict(item) if isinstance(item, Mapping) else {item: None}
        for activity, names in kinds.items():
            if activity in found:
                raise ValueError(f"activities= has {activity} more than once")
            found[activity] = names is None or len(names) > 0
    return {activity for activity, is_wanted in found.items() if is_wanted}


def has_devices(activities: set[ProfilerActivity], stacklevel: int) -> bool:
    """Is there a device that is asked for? Whoever asked for one that is not hears of it, in torch's words."""
    from torch.profiler import ProfilerActivity

    asked = activities - {ProfilerActivity.CPU}
    if not asked:
        return False
    there = device.activities()
    for missing in sorted(activity.name for activity in asked - there):
        warnings.warn(
            f"{missing} is not available, disabling {missing} profiling", UserWarning, stacklevel=stacklevel + 1
        )
    return bool(asked & there)
