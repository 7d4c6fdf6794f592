"""Defines FunctionEvent, FunctionEventAvg and their parts. These classes have the attributes and constructor arguments
of the newest torch (2.15) and of older releases.

Programs create these objects, and column_events.py creates them from a trace's columns. event_list.py defines the list
of events.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from opspan.events.kinds import TIMED, DeviceType
from opspan.events.metadata import metadata_of
from opspan.events.texts import format_time


class Kernel(NamedTuple):
    """A kernel or a copy that an op ran on a device. `duration` is in microseconds."""

    name: str
    device: int
    duration: float


class Interval:
    """A time span from start to end, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        return self.end - self.start


def _as_text(attribute: str) -> property:
    return property(lambda event: format_time(getattr(event, attribute)))


def _deprecated(old: str, new: str, attribute: str | None = None) -> property:
    def read(event: Any) -> Any:
        warnings.warn(f"`{old}` is deprecated. Use `{new}` instead.", FutureWarning, stacklevel=2)
        return getattr(event, attribute or new)

    return property(read)


class FormattedTimesMixin:
    """Adds times per call and times as text to classes that have totals and a count."""

    count: int

    cpu_time_str = _as_text("cpu_time")
    device_time_str = _as_text("device_time")
    cpu_time_total_str = _as_text("cpu_time_total")
    device_time_total_str = _as_text("device_time_total")
    self_cpu_time_total_str = _as_text("self_cpu_time_total")
    self_device_time_total_str = _as_text("self_device_time_total")
    cuda_time = _deprecated("cuda_time", "device_time")

    @property
    def cpu_time(self: Any) -> float:  # subclasses have totals as attributes or properties
        return 0.0 if self.count == 0 else 1.0 * self.cpu_time_total / self.count

    @property
    def device_time(self: Any) -> float:
        return 0.0 if self.count == 0 else 1.0 * self.device_time_total / self.count


class FunctionEvent(FormattedTimesMixin):
    """An op, a user's range or a step on the CPU, or a kernel or a copy on a device. Times are microseconds."""

    module_hierarchy: str = ""  # torch has this value only in Chrome traces, so the constructor does not take it

    def __init__(
        self,
        id: int,  # noqa: A002  # torch's name for it
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Any = None,
        stack: list[str] | None = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        device_type: Any = DeviceType.CPU,
        device_index: int = 0,
        device_resource_id: int | None = None,
        is_legacy: bool = False,
        flops: int | None = None,
        trace_name: str | None = None,
        concrete_inputs: list[Any] | None = None,
        kwinputs: dict[str, Any] | None = None,
        is_user_annotation: bool | None = False,
        is_python_function: bool = False,
        activity_type: str | None = None,
        flow_id: int | None = None,
        flow_type: int | None = None,
        flow_start: bool | None = None,
        external_id: int = 0,
        linked_correlation_id: int = 0,
        extra_meta: Mapping[str, str | None] | None = None,
        structured_input_shapes: Any = None,
        structured_input_strides: Any = None,
        input_dtypes: list[str] | None = None,
        python_id: int = -1,
        python_parent_id: int = -1,
        python_module_id: int = -1,
        typed_metadata: dict[str, Any] | None = None,
        *,
        metadata_json: str | None = None,  # torch 2.15 no longer has this argument
    ) -> None:
        self.id = id
        self.node_id = node_id
        self.name = name
        self.overload_name = overload_name
        self.trace_name = trace_name
        self.time_range = Interval(start_us, end_us)
        self.thread = thread
        self.fwd_thread = fwd_thread
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes = input_shapes
        self.concrete_inputs = concrete_inputs
        self.kwinputs = kwinputs
        self.stack = stack
        self.scope = scope
        self.use_device = use_device
        self.cpu_memory_usage = cpu_memory_usage
        self.device_memory_usage = device_memory_usage
        self.is_async = is_async
        self.is_remote = is_remote
        self.sequence_nr = sequence_nr
        self.device_type = DeviceType.of(device_type)
        self.device_index = device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.is_legacy = is_legacy
        self.flops = flops
        self.is_user_annotation = is_user_annotation
        self.is_python_function = is_python_function
        self.activity_type = activity_type
        # Shares of the total as text. They are -1 until a table has computed them.
        self.self_cpu_percent: str | int = -1
        self.total_cpu_percent: str | int = -1
        self.total_device_percent: str | int = -1
        self._metadata_json = metadata_json
        self.flow_id = flow_id
        self.flow_type = flow_type
        self.flow_start = flow_start
        self.external_id = external_id
        self.linked_correlation_id = linked_correlation_id
        self.metadata = typed_metadata
        self._event_metadata = metadata_of(extra_meta)
        self.structured_input_shapes = structured_input_shapes
        self.structured_input_strides = structured_input_strides
        self.input_dtypes = input_dtypes
        self.python_id = python_id
        self.python_parent_id = python_parent_id
        self.python_module_id = python_module_id

    metadata_json = _deprecated("metadata_json", "metadata", "_metadata_json")
    event_metadata = _deprecated("event_metadata", "metadata", "_event_metadata")
    cuda_time_total = _deprecated("cuda_time_total", "device_time_total")
    self_cuda_time_total = _deprecated("self_cuda_time_total", "self_device_time_total")
    self_cuda_memory_usage = _deprecated("self_cuda_memory_usage", "self_device_memory_usage")

    @property
    def key(self) -> str:
        return self.name

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        self._must_be_on_cpu()
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Adds a direct child. The child's time no longer counts as this event's self time."""
        self._must_be_on_cpu()
        _event(child, "child")._must_be_on_cpu()
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        self._must_be_on_cpu()
        _event(parent, "parent")._must_be_on_cpu()
        self.cpu_parent = parent

    def _must_be_on_cpu(self) -> None:
        if self.device_type != DeviceType.CPU:
            raise AssertionError(f"{self.name!r} is an event of {self.device_type}, expected DeviceType.CPU")

    # An async event is not part of a tree, so it has a total, but no self time and no self memory.

    @property
    def _has_self(self) -> bool:
        return not self.is_async and self.device_type == DeviceType.CPU

    @property
    def self_cpu_memory_usage(self) -> int:
        if not self._has_self:
            return 0
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:
        if not self._has_self:
            return 0
        return self.device_memory_usage - sum(child.device_memory_usage for child in self.cpu_children)

    @property
    def cpu_time_total(self) -> float:
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        if not self._has_self:
            return 0
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def device_time_total(self) -> float:
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self._device_elapsed_us()
        return _kernel_time(self)

    @property
    def self_device_time_total(self) -> float:
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self._device_elapsed_us()
        return self.device_time_total - sum(child.device_time_total for child in self.cpu_children)

    def _device_elapsed_us(self) -> float:
        if self.device_type not in TIMED:
            raise AssertionError(f"{self.name!r} is an event of {self.device_type}, on which no time is known")
        return self.time_range.elapsed_us()

    def __repr__(self) -> str:
        device = self.use_device
        parts = {
            "id": self.id,
            "name": self.name,
            "overload_name": self.overload_name,
            "device_type": self.device_type,
            "node_id": self.node_id,
            "cpu_time": self.cpu_time_str,
            "start_us": self.time_range.start,
            "end_us": self.time_range.end,
            "cpu_children": [child.id for child in self.cpu_children],
            f"{device}_time": self.device_time_str,
            "name ": self.name,  # torch prints the name twice; the space makes this key unlike the first
            "thread": self.thread,
            "input_shapes": self.input_shapes,
            "cpu_memory_usage": self.cpu_memory_usage,
            f"{device}_memory_usage": self.device_memory_usage,
            "is_async": self.is_async,
            "is_remote": self.is_remote,
            "seq_nr": self.sequence_nr,
            "is_legacy": self.is_legacy,
        }
        return f"<FunctionEvent {' '.join(f'{name.rstrip()}={value}' for name, value in parts.items())}>"


def _kernel_time(event: FunctionEvent) -> float:
    """Returns the total time of the kernels of an event and of all events inside the event. Uses no recursion, because
    trees may be deep."""
    events, waiting = [], [event]
    while waiting:
        one = waiting.pop()
        events.append(one)
        # A legacy event has one artificial kernel. Its time includes the event's children. An async child has no device
        # time.
        if not one.is_legacy:
            waiting += [child for child in one.cpu_children if not child.is_async and child.use_device]
    times: dict[int, float] = {}
    for one in reversed(events):
        own = sum(kernel.duration for kernel in one.kernels)
        if not one.is_legacy:
            own += sum(times.get(id(child), 0) for child in one.cpu_children)
        times[id(one)] = own
    return times[id(event)]


def _event(event: object, role: str) -> FunctionEvent:
    if not isinstance(event, FunctionEvent):
        raise AssertionError(f"the {role} is a {type(event).__name__}, expected a FunctionEvent")
    return event


class FunctionEventAvg(FormattedTimesMixin):
    """The sum of the events that have the same key. Attributes that are not summed come from the first event."""

    # Attributes that are taken from the first event.
    _FIRST = (
        "key",
        "node_id",
        "is_async",
        "is_remote",
        "cpu_parent",
        "cpu_children",
        "overload_name",
        "input_shapes",
        "stack",
        "scope",
        "device_type",
        "is_legacy",
        "use_device",
        "is_user_annotation",
    )
    _SUMMED = (
        "cpu_time_total",
        "device_time_total",
        "self_cpu_time_total",
        "self_device_time_total",
        "cpu_memory_usage",
        "device_memory_usage",
        "self_cpu_memory_usage",
        "self_device_memory_usage",
        "count",
    )

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id = 0
        self.is_async = False
        self.is_remote = False
        self.use_device: str | None = None
        self.cpu_time_total: float = 0
        self.device_time_total: float = 0
        self.self_cpu_time_total: float = 0
        self.self_device_time_total: float = 0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_memory_usage = 0
        self.device_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.self_device_memory_usage = 0
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.device_type = DeviceType.CPU
        self.is_legacy = False
        self.flops: int | None = 0
        self.is_user_annotation: bool | None = False

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        if not isinstance(other, FunctionEvent | FunctionEventAvg):
            raise AssertionError(f"cannot add a {type(other).__name__}, expected a FunctionEvent or FunctionEventAvg")
        if self.key is None:
            self.take(other)
        if other.key != self.key:
            raise AssertionError(f"cannot add {other.key!r} to {self.key!r}, expected the same key")
        for name in self._SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self.flops is None:
            self.flops = other.flops
        elif other.flops is not None:
            self.flops += other.flops
        return self

    __iadd__ = add

    def take(self, other: FunctionEvent | FunctionEventAvg) -> None:
        """Copies the attributes of `other` that are not summed, without adding its sums."""
        for name in self._FIRST:
            setattr(self, name, getattr(other, name))

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        parts = (
            f"key={self.key}",
            f"self_cpu_time={self.self_cpu_time_total_str}",
            f"cpu_time={self.cpu_time_str}",
            f" self_{device}_time={self.self_device_time_total_str}",
            f"{device}_time={self.device_time_str}",
            f"input_shapes={self.input_shapes}",
            f"cpu_memory_usage={self.cpu_memory_usage}",
            f"{device}_memory_usage={self.device_memory_usage}",
        )
        return f"<FunctionEventAvg {' '.join(parts)}>"
