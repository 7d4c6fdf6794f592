"""The base class for torch.profiler's interface. It records one cycle after another, and keeps the results of the last
one.

A cycle is one recording (emit/record.py). It is read when a user asks for its results.
"""

from __future__ import annotations

import json
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from opspan import forked
from opspan.emit.ranks import distributed
from opspan.emit.record import record
from opspan.errors import AlreadyActive, NothingToProfile, NotStarted
from opspan.profiler import chrome, enabled, experimental
from opspan.profiler.activities import has_devices, left_out, parse_activities
from opspan.profiler.time_limit import within

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity

    from opspan.events import EventList, FunctionEventAvg
    from opspan.trace import Trace


class _KinetoProfile:
    """Records from `start` to `stop`. The subclass `profile` adds the schedule.

    `path` is the folder for the captures, one file per cycle. Without `path` the captures are temporary. `python`
    records every call of a Python function. `compiled` records torch.compile's log about its kernels.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity | Mapping[ProfilerActivity, list[str]]] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        path: str | os.PathLike[str] | None = None,
        python: bool = False,
        compiled: bool = False,
    ) -> None:
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise ValueError(f"post_processing_timeout_s must be non-negative, got {post_processing_timeout_s}")
        kinds = parse_activities(activities)
        self.activities = set(kinds)
        self._left_out = left_out(kinds)
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.experimental_config = experimental_config
        self.execution_trace_observer = execution_trace_observer
        self.acc_events = acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.preset_metadata: dict[str, str] = {}
        self.python = python
        self.compiled = compiled
        self._path = path
        self._cycles = 0
        self.began_ns = 0  # when the cycle began, on the trace's clock
        self._cycle: record | None = None
        self._metadata: dict[str, Any] = {}
        self._trace: Trace | None = None
        self._events: EventList | None = None
        self._earlier: list[Any] = []  # the events of earlier cycles, if acc_events is true
        self._trace_id: str | None = None
        self._experimental = experimental.fields_of(experimental_config)
        self._is_trace_only = "trace_only" in self._experimental and not with_stack
        if "trace_only" in self._experimental and with_stack:
            warnings.warn("trace_only=True is not used, because of with_stack=True", UserWarning, stacklevel=3)
        self._collections: experimental.GarbageCollections | None = None
        self._is_refused = False  # whether this cycle records nothing, because too many recordings were active
        self._undo = ExitStack()  # undoes the changes made by starting the cycle
        self._has_devices = has_devices(self.activities, stacklevel=3)
        experimental.note_unused(self._experimental, stacklevel=3)

    # --- recording

    def start(self) -> None:
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Prepares a new cycle. Forgets the previous cycle, except its events if `acc_events` is set."""
        from torch.profiler import ProfilerActivity

        has_cpu = ProfilerActivity.CPU in self.activities
        if self.activities and not has_cpu and not self._has_devices:
            raise NothingToProfile("No activities specified for the profiler: neither the CPU nor a device is left")
        self._end()  # ends the previous cycle if it is still recording
        self._cycle = record(
            self._path,
            self.record_shapes or self.with_flops,
            add=self._cycles > 0,
            memory=self.profile_memory,
            stacks=self.with_stack,
            python=self.python,
            compiled=self.compiled,
            overloads="capture_overload_names" in self._experimental,
            modules=self.with_modules,
            device=self._has_devices,
            enabled=has_cpu or self._has_devices,
        )
        if self.acc_events and self._events is not None:
            self._earlier = list(self._events)
        self._cycles += 1
        self._trace = self._events = None
        callback = self.custom_trace_id_callback
        self._trace_id = uuid.uuid4().hex.upper() if callback is None else callback()

    def start_trace(self) -> None:
        cycle = self._prepared("starting")
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.start()
        self.began_ns = time.monotonic_ns()
        self._is_refused = False
        try:
            cycle.__enter__()
        except AlreadyActive as error:
            self._is_refused = True
            warnings.warn(f"nothing is recorded: {error}", UserWarning, stacklevel=2)
        self._undo.callback(enabled.stop)
        enabled.start()
        if "record_python_gc_info" in self._experimental:
            self._collections = experimental.GarbageCollections()
            self._collections.start()
        for name in ("profile_memory", "with_stack", "record_shapes", "with_flops", "with_modules"):
            if getattr(self, name):
                self._metadata[name] = 1
        if (ranks := distributed()) is not None:
            self._metadata["distributedInfo"] = ranks
        for key, value in self.preset_metadata.items():
            self.add_metadata_json(key, value)

    def stop_trace(self) -> None:
        self._prepared("stopping")
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.stop()
        self._end()
        if self.acc_events and not self._is_trace_only:
            self.events()  # reads the events now, before the next cycle replaces this one

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        from torch.profiler import ProfilerActivity

        if self._cycle is None:
            return
        if ProfilerActivity.CPU in set(activities):
            self._cycle.turn(enable)
        self._cycle.turn_devices(enable, activities)

    def is_recording(self) -> bool:
        return self._cycle is not None and self._cycle._is_running()

    @property
    def use_device(self) -> str | None:
        """torch's name for the kind of device that is recorded, or None."""
        names = [activity.name.lower() for activity in self.activities if activity.name != "CPU"]
        return names[0] if names and self._has_devices else None

    @property
    def mem_tl(self) -> NoReturn:
        raise AttributeError("mem_tl is torch's own; prof.trace.memory and export_memory_timeline() say the same")

    def get_trace_id(self) -> str | None:
        return self._trace_id

    # --- the recording

    @property
    def trace(self) -> Trace:
        """The last cycle as a Trace, which every table, export and analysis of opspan accepts."""
        cycle = self._prepared("asking for what it recorded")
        if self._trace is None:
            self._trace = cycle.trace if cycle.enabled and not self._is_refused else _nothing()
        metadata = self._trace.ranks[0].options.get("metadata", {})
        if metadata != self._metadata:
            self._trace = _with_metadata(self._trace, self._metadata)
        return self._trace

    def events(self) -> EventList:
        """Returns the events of the last cycle as torch.profiler lists them: an op directly inside an op of the same
        name is merged with the outer op. With `acc_events` the list includes the earlier cycles."""
        if self._is_trace_only:
            raise RuntimeError("trace_only=True was asked for: there are no events, only export_chrome_trace()")
        if self._events is None:
            from opspan.events import EventList

            self._prepared("asking for what it recorded")
            if self.is_recording():
                return EventList([])
            if self.post_processing_timeout_s is None:
                self._events = self._read_events()
            else:
                events = within(self.post_processing_timeout_s, self._read_events)
                self._events = EventList([]) if events is None else events
            self._events.extend(self._earlier)
        return self._events

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = False,
    ) -> EventList[FunctionEventAvg]:
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name, include_python_functions
        )

    def export_chrome_trace(self, path: str | os.PathLike[str], use_python_export: bool = False) -> None:
        """Writes a Chrome trace, whatever the file's name. If the name ends with .gz, the file is gzipped."""
        from opspan.views import export

        members = chrome.members(os.fspath(path), self._trace_id)
        trace = _with_metadata(chrome.with_engine(self.trace), {**self._metadata, **members})
        if self.with_stack and not trace.functions.height and trace.ranges["stack"].count():
            trace = chrome.with_functions(trace)
        if self._left_out:
            trace = chrome.only_with(trace, self._left_out)
        export(trace.analysed, Path(path), overwrite=True, name="chrome")

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        self.events().export_stacks(Path(path), metric)

    def export_memory_timeline(self, path: str | os.PathLike[str], device: str | None = None) -> None:
        """Writes how much memory was in use over time: as an HTML page with a picture, or as JSON in torch's form
        (docs/profiler.md)."""
        from opspan.profiler.memory_timeline import write

        if not self.profile_memory:
            raise ValueError("export_memory_timeline() needs profile_memory=True")
        write(self.trace, device, Path(path))

    # torch has these methods, because from 2.14 on it may write events of devices after an export has returned. An
    # export of opspan is complete when it returns.
    def wait_for_exports(self) -> None:
        """Returns at once, because exports are never pending."""

    def take_pending_cupti_export(self) -> None:
        """Returns None, because exports are never pending."""

    # --- metadata

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a text to be written into Chrome traces."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a JSON value to be written into Chrome traces. Raises ValueError if it is not valid JSON."""
        try:
            parsed = json.loads(value)
            # Reject NaN and Infinity. json.loads accepts them, although they are not JSON.
            json.dumps(parsed, allow_nan=False)
            self._metadata[key] = parsed
        except (TypeError, ValueError) as error:
            raise ValueError(f"add_metadata_json({key!r}): {str(value)[:80]!r} is not JSON ({error})") from None

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Stores a JSON value, which is added to the metadata when recording starts."""
        self.preset_metadata[key] = value

    def _end(self) -> None:
        self._undo.close()
        if self._collections is not None:
            self._collections.stop()
        if self._cycle is not None:
            self._cycle.__exit__()

    def _read_events(self) -> EventList:
        from opspan.events import profiler_events_of

        return profiler_events_of(self.trace.analysed, self.with_flops, self.began_ns)

    def _prepared(self, doing: str) -> record:
        if self._cycle is None:
            raise NotStarted(f"the profiler has not recorded anything: start it before {doing}")
        return self._cycle


@forked.elsewhere
def _nothing() -> Trace:
    """Returns the empty trace of a cycle that recorded nothing."""
    from opspan.tables import Metadata
    from opspan.trace import Trace

    return Trace((Metadata("capture"),))


@forked.elsewhere
def _with_metadata(trace: Trace, metadata: Mapping[str, Any]) -> Trace:
    from opspan.tables import Tables, side_by_side
    from opspan.tables.metadata import from_distributed
    from opspan.trace import Trace

    distributed = from_distributed(metadata.get("distributedInfo"))
    ranks = [
        replace(
            rank,
            options={**rank.options, "metadata": {**metadata}},
            told=rank.told if distributed.rank is None else distributed,
        )
        for rank in trace.ranks
    ]
    return Trace.of(side_by_side([Tables(tuple(ranks), **trace.frames)]))
