"""Makes the text of a table. Every character is as torch 2.13 prints it.

The text is made in two steps, so that an EventList of a trace need not make objects of all its events. The first step
collects Facts about all events, which decide the columns, their widths and the totals. The second step makes the lines
of the few events that are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from opspan.errors import NoSuchColumn
from opspan.events.kinds import TOTALLED, DeviceType
from opspan.events.texts import format_memory, format_share, format_time_in
from opspan.text_columns import GAP, TextColumn, as_torch

WIDTH = 12  # the width of every column whose width does not depend on its contents

# Attributes that an error message suggests for sorting. Every attribute of an event is accepted.
SORTABLE = (
    "cpu_time_total",
    "self_cpu_time_total",
    "cpu_time",
    "device_time_total",
    "self_device_time_total",
    "device_time",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "count",
    "flops",
    "key",
)
_TEXTS = ("Name", "Overload Name", "Input Shapes", "Source Location")  # columns whose texts may be cut
FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


class Facts(NamedTuple):
    """Facts about all events, including those that the table does not show."""

    use_device: str | None
    longest_name: int
    longest_shapes: int
    self_cpu_us: float
    self_device_us: float
    longest_stack_entry: int | None = None  # None if there are no stacks
    has_device_time: bool = False
    has_device_memory: bool = False
    has_shapes: bool = False
    has_overloads: bool = False
    has_nodes: bool = False
    least_flops: int | None = None  # None if no event has known flops


class TableOptions(NamedTuple):
    """The arguments of torch's table(). If a maximum width is None, the column is as wide as necessary."""

    row_limit: int = 100
    max_src_column_width: int | None = 75
    max_name_column_width: int | None = 55
    max_shapes_column_width: int | None = 80
    header: str | None = None
    top_level_events_only: bool = False
    time_unit: str | None = None
    profile_memory: bool = False
    with_flops: bool = False
    stack_limit: int | None = None  # the most functions to show of each stack; None means all


def sort_attribute(sort_by: str) -> str:
    """Returns the name of the attribute to sort by, with `device` in place of a kind of device, such as cuda."""
    for device in ("cuda", "xpu", "privateuse1"):
        sort_by = sort_by.replace(device, "device")
    return sort_by


def sort_value(event: Any, attribute: str, sort_by: str) -> Any:
    """Returns the value that an event is sorted by. The error for an unknown attribute lists the known ones."""
    if hasattr(event, attribute):
        return getattr(event, attribute)
    import difflib  # imported here, because only errors need it

    close = difflib.get_close_matches(attribute, SORTABLE, 1, 0.6)
    raise NoSuchColumn(
        f"there is no column {sort_by!r} to sort by{f'; did you mean {close[0]}?' if close else ';'} expected one of "
        f"{', '.join(name for name in SORTABLE if hasattr(event, name))} (cuda or xpu may stand for device)"
    )


def facts_of(events: Sequence[Any]) -> Facts:
    """Returns the facts about event objects. There must be at least one event."""
    # Adds the times in a loop as torch does, because from Python 3.12 on sum() rounds floats differently.
    self_cpu_us: float = 0
    self_device_us: float = 0
    for event in events:
        self_cpu_us += event.self_cpu_time_total
        # Device time is the time of the device's own events, but in a legacy profile the CPU events store the kernels.
        if event.device_type == DeviceType.CPU:
            counts = event.is_legacy
        else:
            counts = event.device_type in TOTALLED and not event.is_user_annotation
        if counts:
            self_device_us += event.self_device_time_total
    entries = [len(entry) for event in events for entry in event.stack or ()]
    return Facts(
        use_device=events[0].use_device,
        longest_name=max(len(event.key) for event in events),
        longest_shapes=max(len(str(event.input_shapes)) for event in events),
        longest_stack_entry=max(entries, default=None),
        self_cpu_us=self_cpu_us,
        self_device_us=self_device_us,
        has_device_time=any(event.self_device_time_total > 0 for event in events),
        has_device_memory=any(event.self_device_memory_usage > 0 for event in events),
        has_shapes=any(bool(event.input_shapes) for event in events),
        has_overloads=any(bool(event.overload_name) for event in events),
        has_nodes=any(event.node_id != -1 for event in events),
        least_flops=min((event.flops for event in events if event.flops and event.flops > 0), default=None),
    )


def shown(events: Iterable[Any], options: TableOptions) -> Iterator[Any]:
    """Yields the events that the table shows. A negative `row_limit` means no limit."""
    count = 0
    for event in events:
        if count == options.row_limit:
            return
        if not (options.top_level_events_only and event.cpu_parent is not None):
            count += 1
            yield event


def render(events: Iterable[Any], facts: Facts, options: TableOptions, further: Sequence[TextColumn] = ()) -> str:
    """Returns the text of a table of these events. `further`: more columns on the right, with a cell for each event."""
    columns = filled(events, facts, options, further)
    widths = [width for _, width, _ in _kinds_of_columns(facts, options)]
    widths += [max(len(text) for text in (column.title, *column.cells)) for column in further]
    table = as_torch(columns, widths, measure=len)
    double_rule = "=" * (len(table[0]) - len(GAP))
    lines = [] if options.header is None else [double_rule, options.header]
    if options.top_level_events_only:
        lines += [double_rule, "This report only display top-level ops statistics"]
    return "\n".join([*lines, *table, *totals_of(facts, options.time_unit)]) + "\n"


def filled(
    events: Iterable[Any], facts: Facts, options: TableOptions, further: Sequence[TextColumn] = ()
) -> list[TextColumn]:
    """Returns the columns with a cell for each line. If there are stacks, an event has several lines, and the columns
    `further` are empty in all but its first line."""
    if facts.has_device_time and not facts.use_device:
        raise RuntimeError("use_device is None, but there is device performance data.")
    kinds = _kinds_of_columns(facts, options)
    lines: list[list[str]] = []
    first = []
    for event in events:
        first.append(len(lines))
        lines.append([str(cell) for cell in cells_of(event, facts, options)])
        if facts.longest_stack_entry is not None:
            # As in torch, the other entries of the stack are in the last column, each in a line of its own, even if the
            # title of this column is not that of stacks. An empty line follows the stack.
            empty = [""] * (len(kinds) - 1)
            stack = (event.stack or ())[1 : options.stack_limit]
            rest = [_end_of_path(entry, _stack_width(facts, options)) for entry in stack]
            lines += [[*empty, entry] for entry in [*rest, ""]]
    columns = [
        TextColumn(title, [line[number] for line in lines], align=align, least=0 if title in _TEXTS else None)
        for number, (title, _, align) in enumerate(kinds)
    ]
    for column in further:
        cells = dict(zip(first, column.cells, strict=True))
        columns.append(column._replace(cells=[cells.get(line, "") for line in range(len(lines))]))
    return columns


def totals_of(facts: Facts, time_unit: str | None) -> Iterator[str]:
    """Yields the lines below the table."""
    yield f"Self CPU time total: {format_time_in(facts.self_cpu_us, time_unit)}"
    if facts.has_device_time:
        yield f"Self {_device(facts)} time total: {format_time_in(facts.self_device_us, time_unit)}"


def _at_most(width: int, limit: int | None) -> int:
    return width if limit is None else min(width, limit)


def _stack_width(facts: Facts, options: TableOptions) -> int:
    return _at_most((facts.longest_stack_entry or 0) + 4, options.max_src_column_width)


def _shapes_width(facts: Facts, options: TableOptions) -> int:
    return _at_most(facts.longest_shapes + 4, options.max_shapes_column_width)


def _device(facts: Facts) -> str:
    return facts.use_device.upper() if facts.use_device is not None else "None"


def _kinds_of_columns(facts: Facts, options: TableOptions) -> list[tuple[str, int, str]]:
    """Returns the title, width and alignment of each column."""
    name_width = _at_most(facts.longest_name + 4, options.max_name_column_width)
    device = _device(facts)
    columns = [("Name", name_width, ">")]
    if facts.has_overloads:
        columns.append(("Overload Name", name_width, ">"))
    titles = ["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    if facts.has_device_time:
        titles += [f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg"]
    if options.profile_memory:
        titles += ["CPU Mem", "Self CPU Mem"]
        if facts.use_device and facts.has_device_memory:
            titles += [f"{device} Mem", f"Self {device} Mem"]
    titles.append("# of Calls")
    if facts.has_nodes:
        titles.append("Node ID")
    columns += [(title, WIDTH, ">") for title in titles]
    if facts.has_shapes:
        columns.append(("Input Shapes", _shapes_width(facts, options), ">"))
    if facts.longest_stack_entry is not None:
        columns.append(("Source Location", _stack_width(facts, options), "<"))
    if options.with_flops and facts.least_flops is not None:
        columns.append((f"Total {FLOPS[int(_thousands(facts.least_flops))]}", WIDTH, ">"))
    return columns


def cells_of(event: Any, facts: Facts, options: TableOptions) -> Iterator[Any]:
    def time(value: float) -> str:
        return format_time_in(value, options.time_unit)

    event.self_cpu_percent = format_share(event.self_cpu_time_total, facts.self_cpu_us)
    event.total_cpu_percent = 0 if event.is_async else format_share(event.cpu_time_total, facts.self_cpu_us)
    yield _shortened(event.key, options)
    if facts.has_overloads:
        yield _shortened(event.overload_name or "", options)
    yield event.self_cpu_percent
    yield time(event.self_cpu_time_total)
    yield event.total_cpu_percent
    yield time(event.cpu_time_total)
    yield time(event.cpu_time)
    if facts.has_device_time:
        event.total_device_percent = format_share(event.self_device_time_total, facts.self_device_us)
        yield time(event.self_device_time_total)
        yield event.total_device_percent
        yield time(event.device_time_total)
        yield time(event.device_time)
    if options.profile_memory:
        yield format_memory(event.cpu_memory_usage)
        yield format_memory(event.self_cpu_memory_usage)
        if facts.use_device and facts.has_device_memory:
            yield format_memory(event.device_memory_usage)
            yield format_memory(event.self_device_memory_usage)
    yield event.count
    if facts.has_nodes:
        yield event.node_id
    if facts.has_shapes:
        yield str(event.input_shapes)[: _shapes_width(facts, options)]
    # torch swaps the titles of the last two columns. If both columns are shown, each has the title of the other.
    if options.with_flops and facts.least_flops is not None:
        scale = pow(10, math.floor(_thousands(facts.least_flops)) * -3.0)
        yield f"{event.flops * scale:8.3f}" if (event.flops or 0) > 0 else "--"
    if facts.longest_stack_entry is not None:
        yield _end_of_path(event.stack[0], _stack_width(facts, options)) if event.stack else ""


def _shortened(name: str, options: TableOptions) -> str:
    limit = options.max_name_column_width
    return name if limit is None or len(name) < limit - 3 else name[: limit - 3] + "..."


def _end_of_path(path: str, width: int) -> str:
    if len(path) <= width:
        return path
    end = path[len(path) - width :]
    return "..." + end[3:] if len(end) > 3 else end


def _thousands(flops: int) -> float:
    """Returns the logarithm of `flops` to the base 1000, but at least 0 and at most the index of the largest unit."""
    return max(0, min(math.log10(flops) / 3, float(len(FLOPS) - 1)))
