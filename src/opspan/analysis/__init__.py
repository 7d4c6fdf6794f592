"""Analyses traces: pure functions add columns to the tables of a trace, or compute new tables. docs/analysis.md has
the rules.

`analyse(trace)` calls the functions nest, ops, launches, autograd, functions, device_time, modules_of, steps and
phases. Each function may need columns of functions that come earlier in this list. The functions memory, averages,
calls_of and coverage are called only when they are needed. No function asks which tool wrote a trace, so traces of all
tools are treated alike. Other parts of opspan hold an `Analysis`, which has the tables of a trace and computes each
result once.
"""

from opspan.analysis.analysed import Analysis, analyse, attribute
from opspan.analysis.autograd import autograd
from opspan.analysis.averages import averages, device_time
from opspan.analysis.calls import calls_of
from opspan.analysis.coverage import Coverage, coverage
from opspan.analysis.functions import functions
from opspan.analysis.launches import Launches, launches
from opspan.analysis.memory import memory
from opspan.analysis.modules import modules
from opspan.analysis.nest import nest
from opspan.analysis.ops import ops
from opspan.analysis.phases import phases
from opspan.analysis.steps import steps, steps_named
from opspan.analysis.together import side_by_side

__all__ = [
    "Analysis",
    "Coverage",
    "Launches",
    "analyse",
    "attribute",
    "autograd",
    "averages",
    "calls_of",
    "coverage",
    "device_time",
    "functions",
    "launches",
    "memory",
    "modules",
    "nest",
    "ops",
    "phases",
    "side_by_side",
    "steps",
    "steps_named",
]
