"""Computes figures from sums of hardware events, and says which event of a file measures time.

    figures(counts, width) -> for each row of `counts`, which has a column for each event: instructions, cycles, ipc,
        llc_misses, front_end_bound, retiring, back_end_bound.
    time_event(events) -> the event whose weights are shares of time.
    is_ns(event) -> whether the weights of the event are nanoseconds.
    may_be_rare(event) -> whether a small count of the event is no reason to leave figures out.

Counts of different events have different units, so they are never added. The formulas are those of the event lists and
of the Top-Down Method (level 1) that Intel publishes, and docs/formats/vtune.md lists them:

    front_end_bound = IDQ_UOPS_NOT_DELIVERED.CORE / slots    retiring = UOPS_RETIRED.RETIRE_SLOTS / slots
    slots = width * cycles of cores
    back_end_bound = 1 - (IDQ_UOPS_NOT_DELIVERED.CORE + UOPS_ISSUED.ANY + width * cycles of recovery) / slots
    cycles of cores = CPU_CLK_UNHALTED.THREAD / 2 * (1 + CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE / CPU_CLK_UNHALTED.REF_XCLK)
    cycles of recovery = INT_MISC.RECOVERY_CYCLES_ANY / 2 * (1 + the same)

VTune writes INST_RETIRED.ANY, and perf writes instructions, instructions:u or cpu/instructions/u. A modifier for a
privilege level restricts what is counted. Figures come from events of one restriction only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

_INSTRUCTIONS = ("inst_retired.any", "inst_retired.any_p", "instructions")
_CYCLES = (
    "cpu_clk_unhalted.thread",
    "cpu_clk_unhalted.core",  # the name that VTune used for processors before Nehalem, and uses for Atom
    "cpu_clk_unhalted.thread_p",
    "cpu_clk_unhalted.core_p",
    "cycles",
    "cpu-cycles",
)
_REFERENCE_CYCLES = ("cpu_clk_unhalted.ref_tsc", "cpu_clk_unhalted.ref", "ref-cycles")
_LLC_MISSES = (
    "longest_lat_cache.miss",
    "cache-misses",
    # Loads that missed, without misses of stores and prefetches.
    "mem_load_retired.l3_miss",
    "mem_load_uops_retired.l3_miss",
    "mem_load_uops_retired.llc_miss",
    "mem_load_retired.llc_miss",
)
_ROLES = {"instructions": _INSTRUCTIONS, "cycles": _CYCLES, "llc_misses": _LLC_MISSES}
_NOT_DELIVERED = ("idq_uops_not_delivered.core",)
_RETIRED_SLOTS = ("uops_retired.retire_slots", "uops_retired.slots")
_CORE_CYCLES = ("cpu_clk_unhalted.distributed",)
_ISSUED, _RECOVERY = ("uops_issued.any",), ("int_misc.recovery_cycles_any",)
_ONE_ACTIVE, _CRYSTAL = ("cpu_clk_unhalted.one_thread_active",), ("cpu_clk_unhalted.ref_xclk",)

_WIDTH_OF_SKYLAKE = 4  # and of Intel's cores before it, from Sandy Bridge on

_TIMES = ("samples", "cpu-clock", "task-clock")  # the weights of these events are times
_OF_TIME = (*_TIMES, *_REFERENCE_CYCLES, *_CYCLES)  # the first of these that a file has measures time best

_MODIFIERS = "ukhGHIpPSDeWbR"  # those of perf; the first six restrict what is counted
_PRIVILEGES = frozenset(_MODIFIERS[:6])
_NAME = re.compile(rf"(?:cpu/)?([\w.-]+?)(?:_PS)?(?:/([{_MODIFIERS}]*)|:([{_MODIFIERS}]+))?")  # _PS: precise


class _Event(NamedTuple):
    name: str  # the name in the file
    base: str  # the name in lower case, without modifiers
    privileges: frozenset[str]


def figures(counts: pl.DataFrame, width: int | None = None) -> pl.DataFrame:
    """Returns a row for each row of `counts`, with the columns whose events are there. `counts` has a column for each
    event, named like the event, with the sums of the samples' weights. Without any such event, the result is empty.

    `width` is how many micro-operations a core can issue in a cycle: 4 up to Skylake, 5 from Ice Lake, 6 from Golden
    Cove. Without it, the shares of slots are left out, because opspan does not guess it."""
    columns = _columns(_parsed(counts.columns))
    exprs = {role: pl.col(columns[role]) for role in _ROLES if role in columns}
    if "instructions" in exprs and "cycles" in exprs:
        exprs["ipc"] = _ratio(exprs["instructions"], exprs["cycles"])
    cycles = _core_cycles(columns)
    if width is not None and cycles is not None:
        exprs |= {
            role: _ratio(pl.col(columns[role]), width * cycles)
            for role in ("front_end_bound", "retiring")
            if role in columns
        }
        if (not_issued := _back_end_bound(columns, width, cycles)) is not None:
            exprs["back_end_bound"] = not_issued
    order = ("instructions", "cycles", "ipc", "llc_misses", "front_end_bound", "retiring", "back_end_bound")
    return counts.select(exprs[role].cast(pl.Float64).alias(role) for role in order if role in exprs)


def time_event(events: Iterable[str | None]) -> str | None:
    """Returns the event whose weights are shares of time. None stands for the rows without an event: a tool that does
    not name its event counts time or cycles (`samples.weight`). If the file has no such rows and the result is None, no
    event of the file measures time."""
    parsed = _parsed(name for name in events if name is not None)
    best = min(
        (event for event in parsed if event.base in _OF_TIME),
        key=lambda event: (_OF_TIME.index(event.base), len(event.privileges)),
        default=None,
    )
    return best.name if best is not None else None


def is_ns(event: str | None) -> bool:
    """Returns whether the weights of the event's samples are nanoseconds of processor time."""
    return event is not None and any(parsed.base in _TIMES for parsed in _parsed([event]))


def may_be_rare(event: str) -> bool:
    """Returns whether the figures add the event's count to a larger one, so that a small count is no large error."""
    return any(parsed.base in (*_ONE_ACTIVE, *_RECOVERY) for parsed in _parsed([event]))


def _parsed(names: Iterable[str]) -> list[_Event]:
    """Returns the events whose names can be read. A modifier that changes the meaning, such as `:cmask=1`, makes
    another event of it."""
    matches = ((name, _NAME.fullmatch(name)) for name in names)
    return [
        _Event(name, match[1].lower(), _PRIVILEGES.intersection(match[2] or match[3] or ""))
        for name, match in matches
        if match is not None
    ]


def _columns(events: list[_Event]) -> dict[str, str]:
    """Returns the column of each role. All are of one restriction: that which has most roles, cycles and instructions
    first, and of equal ones the least restricted."""
    others = {
        "front_end_bound": _NOT_DELIVERED,
        "retiring": _RETIRED_SLOTS,
        "issued": _ISSUED,
        "recovery": _RECOVERY,
        "core": _CORE_CYCLES,
        "one": _ONE_ACTIVE,
        "crystal": _CRYSTAL,
    }
    choices = []
    for privileges in dict.fromkeys(event.privileges for event in events):
        names = {event.base: event.name for event in reversed(events) if event.privileges == privileges}
        columns = {
            role: next(names[base] for base in bases if base in names)
            for role, bases in (_ROLES | others).items()
            if names.keys() & set(bases)
        }
        has_both = "cycles" in columns and "instructions" in columns
        choices.append((has_both, len(columns), -len(privileges), columns))
    return max(choices, key=lambda choice: choice[:3], default=(False, 0, 0, {}))[3]


def _core_cycles(columns: dict[str, str]) -> pl.Expr | None:
    """Returns the cycles of cores. Two hyperthreads share a core: if both run, each counts all of the core's cycles."""
    if "core" in columns:
        return pl.col(columns["core"])
    if "cycles" not in columns:
        return None
    cycles = pl.col(columns["cycles"])
    return cycles * _cores_of_hyperthreads(columns) if {"one", "crystal"} <= columns.keys() else cycles


def _back_end_bound(columns: dict[str, str], width: int, cycles: pl.Expr) -> pl.Expr | None:
    """Returns the share of slots that were free because the core could not take a micro-operation. It is what is left
    of all slots, so it needs the cycles of cores to be right. From Ice Lake on, other events count it."""
    if width != _WIDTH_OF_SKYLAKE or not {"front_end_bound", "issued", "recovery", "one", "crystal"} <= columns.keys():
        return None
    recovery = pl.col(columns["recovery"]).fill_null(0) * _cores_of_hyperthreads(columns)  # null: no sample
    used = pl.col(columns["front_end_bound"]) + pl.col(columns["issued"]) + width * recovery
    return (1 - _ratio(used, width * cycles)).clip(lower_bound=0)  # estimates from samples may exceed all slots


def _cores_of_hyperthreads(columns: dict[str, str]) -> pl.Expr:
    """Returns by how much to multiply an event of cores that each running hyperthread counted: 1/2 if both ran."""
    alone = pl.col(columns["one"]).fill_null(0)  # no sample: both hyperthreads ran whenever a sample was taken
    return (1 + _ratio(alone, pl.col(columns["crystal"]))) / 2


def _ratio(part: pl.Expr, of: pl.Expr) -> pl.Expr:
    """Returns null instead of a quotient by 0."""
    return pl.when(of > 0).then(part / of)
