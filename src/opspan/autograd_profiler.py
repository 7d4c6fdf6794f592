"""Offers the names of torch.autograd.profiler, so that a user only has to change an import line.

Like opspan/__init__.py, this file only maps each name to its module. So importing it loads neither torch nor polars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan.late_names import finder

if TYPE_CHECKING:
    from opspan import emit_itt as emit_itt
    from opspan import emit_nvtx as emit_nvtx
    from opspan import load_nvprof as load_nvprof
    from opspan import parse_nvprof_trace as parse_nvprof_trace
    from opspan import record_function as record_function
    from opspan.events import DeviceType as DeviceType
    from opspan.events import EnforceUnique as EnforceUnique
    from opspan.events import EventList as EventList
    from opspan.events import FunctionEvent as FunctionEvent
    from opspan.events import FunctionEventAvg as FunctionEventAvg
    from opspan.events import Interval as Interval
    from opspan.events import Kernel as Kernel
    from opspan.events import KinetoStepTracker as KinetoStepTracker
    from opspan.events import MemRecordsAcc as MemRecordsAcc
    from opspan.events import StringTable as StringTable
    from opspan.profiler import kineto_available as kineto_available
    from opspan.profiler.autograd import profile as profile

# Maps each public name to "module:attribute".
_HOMES = {
    "DeviceType": "opspan.events:DeviceType",
    "EnforceUnique": "opspan.events:EnforceUnique",
    "EventList": "opspan.events:EventList",
    "FunctionEvent": "opspan.events:FunctionEvent",
    "FunctionEventAvg": "opspan.events:FunctionEventAvg",
    "Interval": "opspan.events:Interval",
    "Kernel": "opspan.events:Kernel",
    "KinetoStepTracker": "opspan.events:KinetoStepTracker",
    "MemRecordsAcc": "opspan.events:MemRecordsAcc",
    "StringTable": "opspan.events:StringTable",
    "emit_itt": "opspan:emit_itt",
    "emit_nvtx": "opspan:emit_nvtx",
    "kineto_available": "opspan.profiler:kineto_available",
    "load_nvprof": "opspan:load_nvprof",
    "parse_nvprof_trace": "opspan:parse_nvprof_trace",
    "profile": "opspan.profiler.autograd:profile",
    "record_function": "opspan:record_function",
}

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept misspelt names
    __getattr__ = finder(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
