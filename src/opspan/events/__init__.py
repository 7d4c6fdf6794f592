"""Offers a trace as torch's profiler does: FunctionEvent, EventList, and torch's table. docs/events.md describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan import forked
from opspan.late_names import finder

if TYPE_CHECKING:
    from opspan.analysis import Analysis
    from opspan.events.columns import EventColumns
    from opspan.events.event import FormattedTimesMixin as FormattedTimesMixin
    from opspan.events.event import FunctionEvent as FunctionEvent
    from opspan.events.event import FunctionEventAvg as FunctionEventAvg
    from opspan.events.event import Interval as Interval
    from opspan.events.event import Kernel as Kernel
    from opspan.events.event_list import EventList as EventList
    from opspan.events.kinds import DeviceType as DeviceType
    from opspan.events.metadata import EventMetadata as EventMetadata
    from opspan.events.records import EnforceUnique as EnforceUnique
    from opspan.events.records import MemRecordsAcc as MemRecordsAcc
    from opspan.events.records import StringTable as StringTable
    from opspan.events.steps import KinetoStepTracker as KinetoStepTracker
    from opspan.events.texts import Microseconds as Microseconds

_HOMES = {
    "DeviceType": "kinds",
    "EnforceUnique": "records",
    "EventList": "event_list",
    "EventMetadata": "metadata",
    "FormattedTimesMixin": "event",
    "FunctionEvent": "event",
    "FunctionEventAvg": "event",
    "Interval": "event",
    "Kernel": "event",
    "KinetoStepTracker": "steps",
    "MemRecordsAcc": "records",
    "Microseconds": "texts",
    "StringTable": "records",
}

__all__ = [*_HOMES, "events_of", "profiler_events_of"]


if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept misspelt names
    __getattr__ = finder(__name__, {name: f"opspan.events.{home}:{name}" for name, home in _HOMES.items()})


@forked.elsewhere
def events_of(analysis: Analysis, with_flops: bool = False) -> EventList:
    """Returns the EventList over a trace's ranges and work, as `trace.events()` does."""
    from opspan.events.columns import event_columns

    return _event_list(event_columns(analysis.attributed), with_flops)


@forked.elsewhere
def profiler_events_of(analysis: Analysis, with_flops: bool = False, zero_ns: int = 0) -> EventList:
    """Returns the list that torch.profiler would have made of a trace that it wrote. The times of events count from
    `zero_ns`."""
    from opspan.events.profiler import profiler_columns

    return _event_list(profiler_columns(analysis.attributed).since(zero_ns), with_flops)


def _event_list(columns: EventColumns, with_flops: bool) -> EventList:
    from opspan.events.column_events import ColumnEvents
    from opspan.events.event_list import EventList

    return EventList.over(ColumnEvents(columns.with_flops() if with_flops else columns))
