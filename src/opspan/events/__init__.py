"""The torch-like face of a trace: FunctionEvent, EventList, and torch's table. docs/events.md describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan import forked
from opspan.events.event import FormattedTimesMixin, FunctionEvent, FunctionEventAvg, Interval, Kernel
from opspan.events.event_list import EventList
from opspan.events.kinds import DeviceType
from opspan.events.metadata import EventMetadata
from opspan.events.records import EnforceUnique, MemRecordsAcc, StringTable
from opspan.events.steps import KinetoStepTracker
from opspan.events.times import Microseconds

if TYPE_CHECKING:
    from opspan.analysis import Analysis
    from opspan.events.column_events import ColumnEvents

__all__ = [
    "DeviceType",
    "EnforceUnique",
    "EventList",
    "EventMetadata",
    "FormattedTimesMixin",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "KinetoStepTracker",
    "MemRecordsAcc",
    "Microseconds",
    "StringTable",
    "events_of",
    "profiler_events_of",
]


def events_in_columns(analysis: Analysis, with_flops: bool = False) -> ColumnEvents:
    """The events over a trace's ranges and work, in columns."""
    from opspan.events.column_events import ColumnEvents
    from opspan.events.columns import event_columns

    columns = event_columns(analysis.attributed)
    return ColumnEvents(columns.with_flops() if with_flops else columns)


@forked.elsewhere
def events_of(analysis: Analysis, with_flops: bool = False) -> EventList:
    """The EventList over a trace's ranges and work; what `trace.events()` gives."""
    return EventList.over(events_in_columns(analysis, with_flops))


@forked.elsewhere
def profiler_events_of(analysis: Analysis, with_flops: bool = False) -> EventList:
    """The list that torch.profiler would have made of a trace that it wrote."""
    from opspan.events.column_events import ColumnEvents
    from opspan.events.profiler import profiler_columns

    columns = profiler_columns(analysis.attributed)
    return EventList.over(ColumnEvents(columns.with_flops() if with_flops else columns))
