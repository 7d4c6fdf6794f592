"""opspan: labels for every PyTorch op under any profiler, and any profiler's result read back as one table.

This file only says where each public name lives. A name is imported when it is first used, so `import opspan` costs
nothing: no polars, no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# name -> "module:attribute", or "module" where the name is the module itself
_HOMES = {
    "Metadata": "opspan.trace:Metadata",
    "OpspanError": "opspan.errors:OpspanError",
    "ProfilerAction": "opspan.emit.schedule:ProfilerAction",
    "Trace": "opspan.trace:Trace",
    "annotate": "opspan.emit.annotate:annotate",
    "emit_itt": "opspan.emit.sessions:emit_itt",
    "emit_nvtx": "opspan.emit.sessions:emit_nvtx",
    "itt": "opspan.itt",
    "load": "opspan.readers:load",
    "load_kineto": "opspan.loading:load_kineto",
    "load_nsys": "opspan.loading:load_nsys",
    "load_nvprof": "opspan.loading:load_nvprof",
    "load_rocpd": "opspan.loading:load_rocpd",
    "load_unitrace": "opspan.loading:load_unitrace",
    "load_vtune": "opspan.loading:load_vtune",
    "load_vtune_report": "opspan.loading:load_vtune_report",
    "mark": "opspan.emit.annotate:mark",
    "merge": "opspan.analysis.merge:merge",
    "nvtx": "opspan.nvtx",
    "parse_nvprof_trace": "opspan.loading:parse_nvprof_trace",
    "record": "opspan.emit.record:record",
    "record_function": "opspan.emit.annotate:record_function",
    "schedule": "opspan.emit.schedule:schedule",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("opspan")
    if name not in _HOMES:
        raise AttributeError(f"module 'opspan' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = import_module(module)
    value = globals()[name] = getattr(value, attribute) if attribute else value  # found without us the next time
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
