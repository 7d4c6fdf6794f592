"""Converts our events to torch's events. Among the modules that read traces, only this one imports torch, and only when
`to_torch` is called."""

from __future__ import annotations

from typing import Any

from opspan.errors import MissingPackage
from opspan.events.event import FunctionEvent, FunctionEventAvg
from opspan.events.metadata import EventMetadata

# Attributes that hold objects of opspan's classes. All other attributes are copied to torch's events unchanged.
_OURS = ("time_range", "device_type", "_event_metadata", "kernels", "cpu_children", "cpu_parent")
# Attributes that not all releases of torch have. The first exists since 2.14, the second existed before 2.15.
_SOME_RELEASES = ("metadata", "_metadata_json")
_EVENT = tuple(name for name in vars(FunctionEvent(0, "", 0, 0, 0)) if name not in _OURS)
_AVERAGE = tuple(name for name in vars(FunctionEventAvg()) if name not in _OURS)


def to_torch(events: Any) -> Any:
    """Converts one of our EventLists to torch's EventList. The events keep their parents and children. Times stay
    objects of the class Microseconds (texts.py)."""
    try:
        from torch.autograd import DeviceType, profiler_util
    except ImportError as error:
        message = "torch is not installed, and to_torch() makes torch's objects; install it with: pip install torch"
        raise MissingPackage(message) from error
    listed = list(events)
    every = _with_relatives(listed)  # keeps all objects alive, because an id is unique only while its object exists
    converted = {id(event): _bare(event, profiler_util, DeviceType) for event in every}
    for event in every:
        theirs, parent, children = converted[id(event)], event.cpu_parent, event.cpu_children
        theirs.cpu_parent = None if parent is None else converted[id(parent)]
        theirs.cpu_children = None if children is None else [converted[id(child)] for child in children]
    torch_list = profiler_util.EventList(
        [converted[id(event)] for event in listed],
        use_device=events._use_device,
        profile_memory=events._profile_memory,
        with_flops=events._with_flops,
    )
    torch_list._tree_built = events._tree_built
    return torch_list


def _with_relatives(events: list[Any]) -> list[Any]:
    """Returns the events and all events that they are linked to, without duplicates. Uses no recursion, because trees
    may be deep."""
    every: dict[int, Any] = {}
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        if id(event) not in every:
            every[id(event)] = event
            waiting += event.cpu_children or ()
            waiting += () if event.cpu_parent is None else (event.cpu_parent,)
    return list(every.values())


def _bare(event: Any, torch_side: Any, device_types: Any) -> Any:
    """Converts one of our events to torch's event, without parent and children."""
    theirs: Any
    if isinstance(event, FunctionEventAvg):
        theirs, names = torch_side.FunctionEventAvg(), _AVERAGE
    else:
        span = event.time_range
        theirs, names = torch_side.FunctionEvent(event.id, event.name, event.thread, span.start, span.end), _EVENT
        theirs.kernels = [torch_side.Kernel(*kernel) for kernel in event.kernels]
        _set_metadata(theirs, event._event_metadata, torch_side)
    theirs.device_type = device_types(int(event.device_type))
    for name in names:
        if name not in _SOME_RELEASES or name in vars(theirs):
            setattr(theirs, name, getattr(event, name))
    return theirs


def _set_metadata(theirs: Any, metadata: EventMetadata | None, torch_side: Any) -> None:
    """Sets the event metadata. It is a deprecated property since torch 2.15, and did not exist before 2.13."""
    name = "_event_metadata" if hasattr(theirs, "_event_metadata") else "event_metadata"
    if metadata is not None and name in vars(theirs):
        known = torch_side.EventMetadata._fields
        setattr(theirs, name, torch_side.EventMetadata(*(getattr(metadata, field, None) for field in known)))
