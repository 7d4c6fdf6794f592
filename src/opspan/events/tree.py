"""Finds the parents and children of event objects, as torch does. Events of a trace already have parents and
children."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from opspan.events.event import FunctionEvent
from opspan.events.kinds import BACKWARD_SCOPE, DeviceType


def link(events: Iterable[FunctionEvent]) -> None:
    """Makes each event a child of the innermost event on its thread that contains it.

    If two events merely overlap, neither is the other's parent. Async and device events are not part of the tree.
    """
    stacked = [event for event in events if not event.is_async and event.device_type == DeviceType.CPU]
    stacked.sort(key=lambda event: event.thread)
    # groupby() joins only neighbours, and the events are sorted only by thread. So, as in torch, an event of another
    # node with the same thread number splits a group in two.
    for _, thread in groupby(stacked, key=lambda event: (event.thread, event.node_id)):
        enclosing: list[FunctionEvent] = []
        for event in sorted(thread, key=lambda event: (event.time_range.start, -event.time_range.end)):
            start, end = event.time_range.start, event.time_range.end
            while enclosing and (start >= enclosing[-1].time_range.end or end > enclosing[-1].time_range.end):
                enclosing.pop()
            if enclosing:
                if event.cpu_parent is not None:
                    raise AssertionError(f"{event.key!r} has a parent already, expected none before the tree is built")
                enclosing[-1].append_cpu_child(event)
                event.set_cpu_parent(enclosing[-1])
            enclosing.append(event)


def without_duplicates(events: Sequence[FunctionEvent]) -> list[FunctionEvent]:
    """Drops each event that is the only child of a parent with the same name. The parent gets the children and kernels
    of the dropped event."""
    remaining = list(events)
    while True:
        left: list[FunctionEvent] = []
        for event in remaining:
            parent = event.cpu_parent
            if parent is None or parent.name != event.name or len(parent.cpu_children) != 1:
                left.append(event)
                continue
            parent.cpu_children = event.cpu_children
            parent.kernels = event.kernels
            for child in event.cpu_children:
                child.cpu_parent = parent
        if len(left) == len(remaining):
            return remaining
        remaining = left


def hand_stacks_to_backward(events: Sequence[FunctionEvent]) -> None:
    """Gives backward events, and all events inside them, the stack of their forward event, or an empty stack if the
    forward event is unknown."""
    forward: dict[tuple[int, int | None], list[str]] = {}
    for event in events:
        if event.stack is not None and _backward(event) is None:
            forward.setdefault((event.sequence_nr, event.thread), event.stack)
    for event in events:
        backward = _backward(event)
        if backward is not None:
            event.stack = forward.get((backward.sequence_nr, backward.fwd_thread), [])


def _backward(event: FunctionEvent | None) -> FunctionEvent | None:
    """Returns this event if it is a backward event, else the innermost backward event that contains it."""
    while event is not None and event.scope != BACKWARD_SCOPE:
        event = event.cpu_parent
    return event
