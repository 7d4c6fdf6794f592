"""Defines torch.profiler.profile for opspan: it records cycles, which follow a schedule."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from opspan.emit import compile_log, step_ends
from opspan.emit.annotate import annotate
from opspan.emit.schedule import ProfilerAction, every_step
from opspan.profiler import autograd
from opspan.profiler.activities import parse_activities
from opspan.profiler.cycles import _KinetoProfile
from opspan.profiler.transitions import INCORRECT, TRANSITIONS, action_of

if TYPE_CHECKING:
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity


class profile(_KinetoProfile):  # noqa: N801  # torch's name
    """torch.profiler.profile, but recorded by opspan. It has the same arguments and methods, plus `trace`.

        with profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=handler) as prof:
            for batch in loader:
                train(batch)
                prof.step()
        print(prof.key_averages().table(sort_by="self_cpu_time_total"))

    Without a schedule, `profile` records everything, and calls `on_trace_ready` at the end.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity | Mapping[ProfilerActivity, list[str]]] | None = None,
        schedule: Callable[[int], object] | None = None,
        on_trace_ready: Callable[[Any], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        path: str | os.PathLike[str] | None = None,
        python: bool = False,
        compiled: bool = False,
    ) -> None:
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated: use `activities`", FutureWarning, stacklevel=2)
            activities = _with_cuda(set(parse_activities(activities)), use_cuda)
        super().__init__(
            activities=activities,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer or _observer_from_environment(),
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
            path=path,
            python=python,
            compiled=compiled,
        )
        self.schedule = schedule or every_step
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = action_of(self.schedule(0))
        self._profiler: autograd.profile | None = None
        # The name is torch's, because scripts look up calls in this dict and replace some of them.
        self.action_map = {pair: [partial(call, self) for call in calls] for pair, calls in TRANSITIONS.items()}
        self._step_range: AbstractContextManager[Any] | None = None
        self._speaking = ExitStack()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            if self.execution_trace_observer is not None:
                self.execution_trace_observer.cleanup()

    def start(self) -> None:
        if self.compiled:  # most compiling happens before the recorded steps, so its log is kept from now on
            self._speaking.callback(compile_log.stop)
            compile_log.start()
        if self.record_steps:
            self._speaking.enter_context(step_ends.ignore_optimizers())
        self._go(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        self._speaking.close()
        self._end_step()
        self._go(self.current_action, None)

    def step(self) -> None:
        """Begins the next step. Changes the step number and the action only after the call of the schedule, which may
        fail."""
        self._end_step()
        following = action_of(self.schedule(self.step_num + 1))
        last, self.current_action = self.current_action, following
        self.step_num += 1
        self._go(last, following)
        self._begin_step()
        step_ends.tell()

    @property
    def profiler(self) -> autograd.profile | None:
        """An object with torch.autograd.profiler's interface for the last cycle; None before the first cycle."""
        if self._cycle is None:
            return None
        if self._profiler is None:
            self._profiler = autograd.profile.over(self)
        return self._profiler

    def prepare_trace(self) -> None:
        super().prepare_trace()
        self._profiler = None

    @property
    def step_rec_fn(self) -> AbstractContextManager[Any] | None:
        """The range of the current step, or None."""
        return self._step_range

    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Sets the callback that returns the trace ids of later cycles."""
        self.custom_trace_id_callback = callback

    def _go(self, last: ProfilerAction, following: ProfilerAction | None) -> None:
        if (last, following) in INCORRECT and following is not None:
            warnings.warn(f"Incorrect schedule: {last.name} followed by {following.name}", UserWarning, stacklevel=3)
        for call in self.action_map.get((last, following), ()):
            call()

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _begin_step(self) -> None:
        self._end_step()
        if self.record_steps:
            self._step_range = self._range(f"ProfilerStep#{self.step_num}")
            self._step_range.__enter__()

    def _range(self, name: str) -> AbstractContextManager[Any]:
        """Returns a range for a step. An execution trace needs a range that torch also records. Otherwise torch must
        not record the range, because one of torch's profilers may be active too, with ranges for its own steps."""
        if self.execution_trace_observer is None:
            return annotate(name)
        from opspan.emit.record_function import record_function

        return record_function(name)

    def _end_step(self) -> None:
        open_range, self._step_range = self._step_range, None
        if open_range is not None:
            open_range.__exit__(None, None, None)


def _observer_from_environment() -> ExecutionTraceObserver | None:
    """Returns the observer that ENABLE_PYTORCH_EXECUTION_TRACE=1 requests, or None. torch before 2.5 does not have this
    variable."""
    from torch.profiler import ExecutionTraceObserver

    build = getattr(ExecutionTraceObserver, "build_execution_trace_obs_from_env", lambda: None)
    observer: ExecutionTraceObserver | None = build()
    return observer


def _with_cuda(activities: set[ProfilerActivity], use_cuda: bool) -> set[ProfilerActivity]:
    from torch.profiler import ProfilerActivity

    return activities | {ProfilerActivity.CUDA} if use_cuda else activities - {ProfilerActivity.CUDA}
