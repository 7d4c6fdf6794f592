"""Gives opspan's events the methods of torch's Kineto results, for `prof.profiler.kineto_results`.

Times are nanoseconds since 1970. Changes of memory are not listed as events. Calling a method that is missing here
raises AttributeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opspan.events import EventList, FunctionEvent

# For each method of torch's `_KinetoEvent`, the attribute of FunctionEvent with the method's result.
_ATTRIBUTES = {
    "activity_type": "activity_type",
    "concrete_inputs": "concrete_inputs",
    "correlation_id": "id",
    "device_index": "device_index",
    "device_resource_id": "device_resource_id",
    "device_type": "device_type",
    "external_id": "external_id",
    "flops": "flops",
    "flow_id": "flow_id",
    "flow_start": "flow_start",
    "flow_type": "flow_type",
    "fwd_thread_id": "fwd_thread",
    "is_async": "is_async",
    "is_python_function": "is_python_function",
    "is_user_annotation": "is_user_annotation",
    "kwinputs": "kwinputs",
    "linked_correlation_id": "linked_correlation_id",
    "name": "trace_name",
    "overload_name": "overload_name",
    "scope": "scope",
    "sequence_nr": "sequence_nr",
    "shapes": "input_shapes",
    "stack": "stack",
    "start_thread_id": "thread",
    "end_thread_id": "thread",
    "structured_input_shapes": "structured_input_shapes",
    "structured_input_strides": "structured_input_strides",
}


class KinetoEvent:
    """An event with the methods of torch's `_KinetoEvent`."""

    def __init__(self, event: FunctionEvent, trace_start_ns: int) -> None:
        self._event = event
        self._trace_start_ns = trace_start_ns

    def start_ns(self) -> int:
        return self._trace_start_ns + _ns(self._event.time_range.start)

    def end_ns(self) -> int:
        return self._trace_start_ns + _ns(self._event.time_range.end)

    def duration_ns(self) -> int:
        return self.end_ns() - self.start_ns()

    def __getattr__(self, name: str) -> Callable[[], Any]:
        if name not in _ATTRIBUTES:
            raise AttributeError(f"opspan has no {name}() of an event; prof.events() and prof.trace have what it knows")
        return lambda: getattr(self._event, _ATTRIBUTES[name])


class EventNode:
    """An event in the tree that `experimental_event_tree()` returns."""

    def __init__(self, event: FunctionEvent, trace_start_ns: int, parent: EventNode | None) -> None:
        self._event = KinetoEvent(event, trace_start_ns)
        self.parent = parent
        self.name: str = event.trace_name or event.name
        self.overload_name: str = event.overload_name or ""
        self.id = self.correlation_id = event.id
        self.start_tid = event.thread
        self.start_time_ns = self._event.start_ns()
        self.end_time_ns = self._event.end_ns()
        self.duration_time_ns = self.end_time_ns - self.start_time_ns
        self.children = [EventNode(child, trace_start_ns, self) for child in event.cpu_children]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"opspan has no {name} of a node; prof.events() and prof.trace have what it knows")


class KinetoResults:
    def __init__(self, events: EventList, trace_start_ns: int) -> None:
        self._events = events
        self._trace_start_ns = trace_start_ns

    def events(self) -> list[KinetoEvent]:
        return [KinetoEvent(event, self._trace_start_ns) for event in self._events]

    def trace_start_ns(self) -> int:
        return self._trace_start_ns

    def experimental_event_tree(self) -> list[EventNode]:
        """Returns the outermost CPU events, each with the events inside it."""
        roots = [event for event in self._events if event.cpu_parent is None and event.device_type.name == "CPU"]
        return [EventNode(event, self._trace_start_ns, None) for event in roots]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"opspan has no kineto_results.{name}; prof.export_chrome_trace() writes the recording")


def _ns(time_us: float) -> int:
    return int(getattr(time_us, "ns", time_us * 1000))
