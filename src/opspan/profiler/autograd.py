"""torch.autograd.profiler.profile, but recorded by opspan. An object of this class makes one recording."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opspan.profiler.cycles import _KinetoProfile

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity

    from opspan.events import EventList, FunctionEventAvg
    from opspan.profiler.kineto_results import KinetoResults
    from opspan.trace import Trace

_DEVICES = ("cuda", "xpu", "mtia", "hpu")


@dataclass
class ProfilerStats:
    """The cost of profiling itself, under torch's names. `parse_kineto_call_duration_us` includes reading the capture
    and building the tree."""

    profiling_window_duration_sec: float = 0
    number_of_events: int = 0
    profiler_prepare_call_duration_us: int = 0
    profiler_enable_call_duration_us: int = 0
    profiler_disable_call_duration_us: int = 0
    parse_kineto_call_duration_us: int = 0
    function_events_build_tree_call_duration_us: int = 0


class profile:  # noqa: N801  # torch's name
    """torch.autograd.profiler.profile: records its `with` block, and shows the events afterwards.

        with profile(record_shapes=True) as prof:
            model(x).sum().backward()
        print(prof.key_averages().table(sort_by="self_cpu_time_total"))

    `enabled=False` turns recording off. Most people want `opspan.profiler.profile` instead of this class.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: object = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: dict[ProfilerActivity, set[str]] | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.enabled = enabled
        self.entered = False
        if not enabled:
            return
        if use_cuda:
            warnings.warn("use_cuda=True is deprecated: write use_device='cuda'", FutureWarning, stacklevel=2)
            use_device = "cuda"
        if not use_cpu and not use_kineto:
            raise AssertionError("use_cpu=False needs use_kineto=True")
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise ValueError(f"post_processing_timeout_s must be non-negative, got {post_processing_timeout_s}")
        self.use_device = _device_that_is_there(use_device)
        self.record_shapes = record_shapes or with_flops
        self.with_flops, self.profile_memory = with_flops, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.use_cpu, self.acc_events = use_cpu, acc_events
        self.activity_filters = activity_filters or {}
        self.stats = ProfilerStats()
        self._recorder = _KinetoProfile(
            activities=_activities(use_cpu, self.use_device),
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
            path=path,
        )
        self._began_ns = 0
        self._is_over = False

    @classmethod
    def over(cls, recorder: _KinetoProfile) -> profile:
        """Returns the value of `prof.profiler`: an object of this class that shows the last cycle of `recorder`."""
        device = recorder.use_device
        profiler = cls(use_cpu=True, acc_events=recorder.acc_events)
        for name in ("record_shapes", "with_flops", "profile_memory", "with_stack", "with_modules"):
            setattr(profiler, name, getattr(recorder, name))
        profiler.use_device, profiler._recorder, profiler.entered = device, recorder, True
        return profiler

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self.stats.profiler_prepare_call_duration_us = _timed(self._recorder.prepare_trace)
        self.stats.profiler_enable_call_duration_us = _timed(self._recorder.start_trace)
        self._began_ns = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.enabled or self._is_over:
            return
        self._is_over = True
        self.stats.profiling_window_duration_sec = (time.perf_counter_ns() - self._began_ns) / 1e9
        self.stats.profiler_disable_call_duration_us = _timed(self._recorder.stop_trace)

    def __repr__(self) -> str:
        return repr(self.function_events) if self._has_ended() else "<unfinished torch.autograd.profile>"

    def __str__(self) -> str:
        return str(self.function_events) if self._has_ended() else "<unfinished torch.autograd.profile>"

    @property
    def trace(self) -> Trace:
        """The recording as a Trace, which every table, export and analysis of opspan accepts."""
        return self._ended().trace

    @property
    def trace_id(self) -> str:
        return self._recorder.get_trace_id() or ""

    @property
    def function_events(self) -> EventList:
        recorder, began_ns = self._ended(), time.perf_counter_ns()
        events = recorder.events()
        if not self.stats.number_of_events:
            self.stats.parse_kineto_call_duration_us = (time.perf_counter_ns() - began_ns) // 1000
            self.stats.number_of_events = len(events)
        return events

    @property
    def self_cpu_time_total(self) -> float:
        return self.function_events.self_cpu_time_total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        return self.function_events.table(
            sort_by=sort_by,
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
        )

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = False,
    ) -> EventList[FunctionEventAvg]:
        return self.function_events.key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name, include_python_functions
        )

    def total_average(self) -> FunctionEventAvg:
        return self.function_events.total_average()

    def export_chrome_trace(
        self, path: str | os.PathLike[str], metadata: dict[str, str] | None = None, use_python_export: bool = False
    ) -> None:
        recorder = self._ended()
        for key, value in (metadata or {}).items():
            recorder.add_metadata(key, value)
        recorder.export_chrome_trace(path, use_python_export)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        if not self.with_stack:
            raise AssertionError("export_stacks() needs with_stack=True")
        self._ended().export_stacks(path, metric)

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[ProfilerActivity]) -> None:
        self._recorder.toggle_collection_dynamic(enabled, activities)

    @property
    def kineto_results(self) -> KinetoResults:
        from opspan.profiler.kineto_results import KinetoResults

        recorder = self._ended()
        origin_ns = recorder.trace.ranks[0].origin_utc_ns or 0
        return KinetoResults(recorder.events(), origin_ns + recorder.began_ns)

    def _has_ended(self) -> bool:
        return self.enabled and self.entered and not self._recorder.is_recording()

    def _ended(self) -> _KinetoProfile:
        if not self._has_ended():
            raise AssertionError("nothing was profiled yet: leave the context manager first")
        return self._recorder


def _timed(call: Callable[[], object]) -> int:
    """Returns how long the call takes, in microseconds."""
    began_ns = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began_ns) // 1000


def _device_that_is_there(name: str | None) -> str | None:
    import torch

    if name is None:
        return None
    if name not in _DEVICES:
        warnings.warn(f"use_device={name!r} is no device that can be profiled", UserWarning, stacklevel=3)
        return None
    module = getattr(torch, name, None)
    if module is None or not module.is_available():
        warnings.warn(f"{name.upper()} is not available: it is not profiled", UserWarning, stacklevel=3)
        return None
    return name


def _activities(use_cpu: bool, device: str | None) -> list[ProfilerActivity]:
    from torch.profiler import ProfilerActivity

    names = [*(["CPU"] if use_cpu else []), *([device.upper()] if device is not None else [])]
    if not names:
        raise AssertionError("nothing is left to profile: neither the CPU nor a device")
    return [getattr(ProfilerActivity, name) for name in names]
