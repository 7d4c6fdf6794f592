"""Offers the names of torch.profiler, but records with opspan. A user of torch.profiler only changes the import line.

Like opspan/__init__.py, this file only maps each name to its module. So importing it loads neither torch nor polars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan.late_names import finder

if TYPE_CHECKING:
    from torch.profiler import DeviceType as DeviceType
    from torch.profiler import ExecutionTraceObserver as ExecutionTraceObserver
    from torch.profiler import ProfilerActivity as ProfilerActivity
    from torch.profiler import kineto_available as kineto_available
    from torch.profiler import supported_activities as supported_activities

    from opspan import itt as itt
    from opspan import record_function as record_function
    from opspan.emit.schedule import ProfilerAction as ProfilerAction
    from opspan.emit.schedule import schedule as schedule
    from opspan.profiler.cycles import _KinetoProfile as _KinetoProfile
    from opspan.profiler.handlers import tensorboard_trace_handler as tensorboard_trace_handler
    from opspan.profiler.profile import profile as profile

# For each name, its "module:attribute", or "module" if the name is the module itself. Names that only torch has are
# taken from torch.
_HOMES = {
    "DeviceType": "torch.profiler:DeviceType",
    "ExecutionTraceObserver": "torch.profiler:ExecutionTraceObserver",
    "ProfilerAction": "opspan.emit.schedule:ProfilerAction",
    "ProfilerActivity": "torch.profiler:ProfilerActivity",
    "_KinetoProfile": "opspan.profiler.cycles:_KinetoProfile",
    "itt": "opspan.itt",
    "kineto_available": "torch.profiler:kineto_available",
    "profile": "opspan.profiler.profile:profile",
    "record_function": "opspan:record_function",
    "schedule": "opspan.emit.schedule:schedule",
    "supported_activities": "torch.profiler:supported_activities",
    "tensorboard_trace_handler": "opspan.profiler.handlers:tensorboard_trace_handler",
}

__all__ = sorted(name for name in _HOMES if not name.startswith("_"))


if not TYPE_CHECKING:  # otherwise a type checker would accept misspelt names
    __getattr__ = finder(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
