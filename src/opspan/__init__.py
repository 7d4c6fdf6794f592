"""opspan labels every PyTorch op under any profiler, and reads any profiler's result back as one table.

This file only maps each public name to its module. A name is imported when it is first used, so `import opspan` is fast
and loads neither polars nor torch. The imports below are only for editors and type checkers. A running program uses the
dict `_HOMES` below the imports.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opspan import forked as _forked  # noqa: F401  the import registers hooks that watch forks
from opspan.late_names import finder

if TYPE_CHECKING:
    from opspan import analysis as analysis
    from opspan import autograd_profiler as autograd_profiler
    from opspan import errors as errors
    from opspan import itt as itt
    from opspan import nvtx as nvtx
    from opspan import profiler as profiler
    from opspan import views as views
    from opspan.analysis.costs import register_flops as register_flops
    from opspan.emit.annotate import annotate as annotate
    from opspan.emit.annotate import mark as mark
    from opspan.emit.itt import emit_itt as emit_itt
    from opspan.emit.listening import listen as listen
    from opspan.emit.nvtx import emit_nvtx as emit_nvtx
    from opspan.emit.pyroscope import emit_pyroscope as emit_pyroscope
    from opspan.emit.record import record as record
    from opspan.emit.record_function import record_function as record_function
    from opspan.emit.schedule import ProfilerAction as ProfilerAction
    from opspan.emit.schedule import schedule as schedule
    from opspan.errors import OpspanError as OpspanError
    from opspan.loading import load as load
    from opspan.loading import load_kineto as load_kineto
    from opspan.loading import load_nsys as load_nsys
    from opspan.loading import load_nvprof as load_nvprof
    from opspan.loading import load_rocpd as load_rocpd
    from opspan.loading import load_unitrace as load_unitrace
    from opspan.loading import load_vtune as load_vtune
    from opspan.loading import load_vtune_report as load_vtune_report
    from opspan.loading import parse_nvprof_trace as parse_nvprof_trace
    from opspan.many.ranks import Ranks as Ranks
    from opspan.many.ranks import load_many as load_many
    from opspan.tables import Metadata as Metadata
    from opspan.trace import Trace as Trace
    from opspan.trace import merge as merge

# Maps each public name to "module:attribute", or to "module" if the name is the module itself.
_HOMES = {
    "Metadata": "opspan.tables:Metadata",
    "OpspanError": "opspan.errors:OpspanError",
    "ProfilerAction": "opspan.emit.schedule:ProfilerAction",
    "Ranks": "opspan.many.ranks:Ranks",
    "Trace": "opspan.trace:Trace",
    "analysis": "opspan.analysis",
    "annotate": "opspan.emit.annotate:annotate",
    "autograd_profiler": "opspan.autograd_profiler",
    "emit_itt": "opspan.emit.itt:emit_itt",
    "emit_nvtx": "opspan.emit.nvtx:emit_nvtx",
    "emit_pyroscope": "opspan.emit.pyroscope:emit_pyroscope",
    "errors": "opspan.errors",
    "itt": "opspan.itt",
    "listen": "opspan.emit.listening:listen",
    "load": "opspan.loading:load",
    "load_kineto": "opspan.loading:load_kineto",
    "load_many": "opspan.many.ranks:load_many",
    "load_nsys": "opspan.loading:load_nsys",
    "load_nvprof": "opspan.loading:load_nvprof",
    "load_rocpd": "opspan.loading:load_rocpd",
    "load_unitrace": "opspan.loading:load_unitrace",
    "load_vtune": "opspan.loading:load_vtune",
    "load_vtune_report": "opspan.loading:load_vtune_report",
    "mark": "opspan.emit.annotate:mark",
    "merge": "opspan.trace:merge",
    "nvtx": "opspan.nvtx",
    "parse_nvprof_trace": "opspan.loading:parse_nvprof_trace",
    "profiler": "opspan.profiler",
    "record": "opspan.emit.record:record",
    "record_function": "opspan.emit.record_function:record_function",
    "register_flops": "opspan.analysis.costs:register_flops",
    "schedule": "opspan.emit.schedule:schedule",
    "views": "opspan.views",
}

__version__: str
__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept misspelt names
    __getattr__ = finder(__name__, {**_HOMES, "__version__": "opspan.version:VERSION"})

    if os.environ.get("OPSPAN_LISTEN", "0") != "0":
        __getattr__("listen")()


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
