"""Parses the argument `activities=` in torch's form, with torch's checks.

An activity may be a mapping that selects kinds of events: `{ProfilerActivity.CPU: ["CPU_OP"]}`. As in torch, the
selection affects only Chrome traces. The list of events contains everything that was recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opspan.emit import device
from opspan.errors import NothingToProfile

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


# torch's names for the kinds of events of each activity, and the categories of these events in Chrome traces.
_OF_THE_CPU = {
    name: name.lower()
    for name in (
        "CPU_OP",
        "USER_ANNOTATION",
        "CPU_INSTANT_EVENT",
        "PYTHON_FUNCTION",
        "EXTERNAL_CORRELATION",
        "CUDA_RUNTIME",
        "CUDA_DRIVER",
        "XPU_RUNTIME",
        "XPU_DRIVER",
        "PRIVATEUSE1_RUNTIME",
        "PRIVATEUSE1_DRIVER",
    )
}
_OF_DEVICES = {
    name: name.lower()
    for name in (
        "CUDA_RUNTIME",
        "CUDA_DRIVER",
        "CUDA_SYNC",
        "GPU_MEMCPY",
        "GPU_MEMSET",
        "GPU_USER_ANNOTATION",
        "XPU_RUNTIME",
        "XPU_DRIVER",
        "MTIA_RUNTIME",
        "MTIA_CCP_EVENTS",
        "MTIA_INSIGHT",
        "MTIA_COUNTERS",
        "HPU_OP",
        "OVERHEAD",
        "PRIVATEUSE1_RUNTIME",
        "PRIVATEUSE1_DRIVER",
    )
} | {"CONCURRENT_KERNEL": "kernel"}


def parse_activities(requested: Iterable[object] | None) -> dict[ProfilerActivity, set[str] | None]:
    """Returns, for each activity, the categories that Chrome traces show; None means all. An activity may be given only
    once. An empty list of kinds turns an activity off."""
    from torch.profiler import ProfilerActivity, supported_activities

    if requested is None:
        return dict.fromkeys(supported_activities())
    activities: dict[ProfilerActivity, set[str] | None] = {}
    for item in requested:
        if not isinstance(item, (ProfilerActivity, Mapping)):
            raise TypeError(f"activities={item!r}: expected a ProfilerActivity or a dict of them")
        kinds = dict(item) if isinstance(item, Mapping) else {item: None}
        for activity, names in kinds.items():
            if activity in activities:
                raise ValueError(f"activities= has {activity} more than once")
            activities[activity] = None if names is None else _categories(activity.name, names)
    if not activities:
        raise NothingToProfile("activities= is empty; expected at least one ProfilerActivity")
    return {activity: categories for activity, categories in activities.items() if categories != set()}


def left_out(activities: Mapping[ProfilerActivity, set[str] | None]) -> set[str]:
    """Returns the categories to leave out of Chrome traces: those that an activity excludes and that no activity
    selects."""
    unwanted, wanted = set(), set()
    for activity, categories in activities.items():
        group = set((_OF_THE_CPU if activity.name == "CPU" else _OF_DEVICES).values())
        wanted |= group if categories is None else categories
        unwanted |= group if categories is not None else set()
    return unwanted - wanted


def _categories(activity: str, names: Iterable[str]) -> set[str]:
    known = _OF_THE_CPU if activity == "CPU" else _OF_DEVICES
    for name in names:
        if name not in known:
            raise RuntimeError(f"Unknown or non-member activity type name: '{name}'; known: {', '.join(sorted(known))}")
    return {known[name] for name in names}


def has_devices(activities: set[ProfilerActivity], stacklevel: int) -> bool:
    """Returns whether at least one requested device exists. Warns about each missing device, in torch's words."""
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
