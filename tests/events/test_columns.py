"""A list over columns says what torch says of the same events, and what a list of its own events says."""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings

pytest.importorskip("torch", "2.13", reason="the face is that of torch 2.13 and later: older classes say less")

from events.frames import both
from events.pairs import GROUPINGS, TABLE_OPTIONS, attributes, torchs_averages, torchs_table
from opspan.events import EventList, FunctionEvent, Interval, Microseconds, column_events
from opspan.events.column_event import ColumnEvent
from opspan.events.column_events import ColumnEvents
from opspan.events.columns import CPU, DEVICE, EventColumns
from opspan.events.event_rows import BLOCK, EventRows

Pair = tuple[EventColumns, Any]

# torch's constructor leaves these at None, and kineto fills them in; an event of a trace is like kineto's.
FILLED = {
    "activity_type",
    "concrete_inputs",
    "kwinputs",
    "structured_input_shapes",
    "structured_input_strides",
    "input_dtypes",
}


def without(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def lazily(columns: EventColumns) -> EventList:
    return EventList.over(ColumnEvents(columns))


@pytest.mark.slow
@settings(max_examples=150)
@given(both(), TABLE_OPTIONS)
def test_tables(pair: Pair, options: dict[str, Any]) -> None:
    columns, expected = pair
    events = lazily(columns)

    text = events.table(**options)

    assert text == torchs_table(expected, **options)
    assert text == EventList(lazily(columns)).table(**options)
    assert text == torchs_table(events.to_torch(), **options)
    assert str(events) == torchs_table(expected)


@pytest.mark.slow
@settings(max_examples=150)
@given(both(), GROUPINGS, TABLE_OPTIONS)
def test_averages(pair: Pair, grouping: tuple[Any, ...], options: dict[str, Any]) -> None:
    columns, expected = pair
    events = lazily(columns)
    objects = EventList(lazily(columns))
    objects._tree_built = True

    averages = events.key_averages(*grouping)

    assert [attributes(one) for one in averages] == [attributes(one) for one in torchs_averages(expected, grouping)]
    assert [attributes(one) for one in averages] == [attributes(one) for one in objects.key_averages(*grouping)]
    assert averages.table(**options) == torchs_table(torchs_averages(expected, grouping), **options)
    assert torchs_table(averages.to_torch(), **options) == averages.table(**options)


@pytest.mark.slow
@settings(max_examples=150)
@given(both())
def test_events_and_totals(pair: Pair) -> None:
    columns, expected = pair
    events = lazily(columns)

    assert len(events) == len(expected)
    assert events.self_cpu_time_total == expected.self_cpu_time_total
    if len(events):
        assert attributes(events.total_average()) == attributes(expected.total_average())
    assert repr(events) == repr(expected)
    assert [without(attributes(event), FILLED | {"device_resource_id"}) for event in events] == [
        without(attributes(event), FILLED | {"device_resource_id"}) for event in expected
    ]


@pytest.mark.slow
@settings(max_examples=100)
@given(both())
def test_walking_an_event_gives_what_the_columns_have(pair: Pair) -> None:
    """Once an event was changed, times come from children and kernels and no longer from columns: the same ones."""
    columns, _ = pair
    events = list(lazily(columns))
    before = [attributes(event) for event in events]

    for event in events:
        event.flops = 0  # the same value as before

    assert [attributes(event) for event in events] == before


# --- a few events by hand


def small(count: int = 3) -> EventColumns:
    """One range around the others, each of which launched a kernel."""
    inner = range(1, count)
    cpu = {
        "rank": [0] * count,
        "tid": [5] * count,
        "name": ["outer", *("inner" for _ in inner)],
        "kind": ["user", *("op" for _ in inner)],
        "start_ns": [0, *(10 * row for row in inner)],
        "end_ns": [10 * count, *(10 * row + 4 for row in inner)],
        "parent": [None, *(0 for _ in inner)],
        "is_event": [True] * count,
        "is_async": [False] * count,
        "self_ns": [10 * count - 4 * len(inner), *(4 for _ in inner)],
        "self_device_ns": [0, *(3 for _ in inner)],
        "device_ns": [3 * len(inner), *(3 for _ in inner)],
        "seq": [None] * count,
        "forward_tid": [None] * count,
        "forward": [None] * count,
        "op_id": [None] * count,
        "sizes": [None, *("[[2]]" for _ in inner)],
        **{name: [None] * count for name in ("input_types", "input_strides", "inputs", "overload", "function")},
    }
    device = {
        "rank": [0 for _ in inner],
        "device_id": [0 for _ in inner],
        "stream_id": [7 for _ in inner],
        "kind": ["kernel" for _ in inner],
        "name": ["k" for _ in inner],
        "start_ns": [10 * row + 5 for row in inner],
        "end_ns": [10 * row + 8 for row in inner],
        "range": list(inner),
    }
    return EventColumns(pl.DataFrame(cpu, schema=CPU), pl.DataFrame(device, schema=DEVICE), "cuda")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the events that became objects."""
    numbers: list[int] = []
    build = ColumnEvent.of

    def counting(rows: EventRows, at: int) -> ColumnEvent:
        numbers.append(rows.first + at)
        return build(rows, at)

    monkeypatch.setattr(ColumnEvent, "of", counting)
    return numbers


def held_by(events: EventList) -> list[ColumnEvent]:
    """The events that somebody still has."""
    held = (one and one() for rows in events._columns._alive.values() for one in rows.events)
    return [event for event in held if event]


MANY = 20 * BLOCK


def test_figures_make_no_events(made: list[int]) -> None:
    events = lazily(small(MANY))

    assert len(events) == 2 * MANY - 1
    assert events.self_cpu_time_total == Microseconds(10 * MANY)

    assert made == []


def test_tables_make_the_events_they_show(made: list[int]) -> None:
    events = lazily(small(MANY))

    assert events.table(sort_by="self_cuda_time_total", row_limit=3).count("\n") == 3 + 3 + 1 + 2
    assert events.key_averages(group_by_input_shape=True).table().count("\n") == 3 + 3 + 1 + 2
    assert events.total_average().count == 2 * MANY - 1

    assert len(made) == 3 + 1 + 1  # two are shown in both tables


def test_walking_through_makes_each_event_once(made: list[int]) -> None:
    events = lazily(small(MANY))

    for position in range(len(events)):
        assert events[position].time_range.start >= 0

    assert len(made) == len(set(made)) == 2 * MANY - 1
    assert not held_by(events)


def test_values_are_kept_of_some_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_events, "BLOCKS", 3)
    events = lazily(small(MANY))

    held = events[2]
    assert sum(event.count for event in events) == len(events)

    assert len(events._columns._alive) == 3 + 1
    assert events[2] is held


def test_an_event_is_one_object_while_somebody_has_it() -> None:
    events = lazily(small())

    outer = events[0]

    assert outer.name == "outer"
    assert outer is events[0] is next(iter(events))
    assert [child.name for child in outer.cpu_children] == ["inner", "inner"]
    assert all(child.cpu_parent is outer for child in outer.cpu_children)
    assert outer.cpu_children[0] is events[1]
    assert events[1].kernels == [("k", 0, Microseconds(3))]


def test_slices_are_lists_of_events() -> None:
    events = lazily(small())

    part = events[-2:]

    assert isinstance(part, EventList)
    assert [event.name for event in part] == ["inner", "k"]
    assert [event.name for event in events[::-2]] == ["k", "k", "outer"]
    assert part.table().count("\n") == 3 + 2 + 1 + 2
    assert part.key_averages().to_torch().table() == part.key_averages().table()


def test_positions_outside_are_index_errors() -> None:
    events = lazily(small())

    assert events[-5] is events[0]
    for position in (5, -6):
        with pytest.raises(IndexError):
            events[position]


def test_a_changed_event_shows_in_tables() -> None:
    events = lazily(small())

    for event in events:
        event.name = event.name.upper()

    assert [average.key for average in events.key_averages()] == ["OUTER", "INNER", "K"]
    assert "INNER" in events.table()
    assert events[0].name == "OUTER"


def test_a_kernel_put_on_an_event_counts_up_the_tree() -> None:
    events = lazily(small())

    events[1].append_kernel("another", 0, Microseconds(100))

    averages = {average.key: average for average in events.key_averages()}
    assert averages["inner"].self_device_time_total == Microseconds(106)
    assert averages["outer"].device_time_total == Microseconds(106)
    assert averages["outer"].self_device_time_total == 0


def test_deep_trees_are_no_trouble() -> None:
    depth = 3 * sys.getrecursionlimit()
    events = EventList(
        [FunctionEvent(row, "deeper", 0, row, 2 * depth - row, use_device="cuda") for row in range(depth)]
    )
    for event, child in itertools.pairwise(events):
        event.append_cpu_child(child)
        child.set_cpu_parent(event)
    events[-1].append_kernel("k", 0, 5)

    assert events[0].device_time_total == events[-1].self_device_time_total == 5
    assert len(events.to_torch()) == depth


def test_a_table_does_not_count_as_a_change() -> None:
    events = lazily(small())
    events.table()

    assert events[0].self_cpu_percent == "73.33%"
    assert not events._columns.changed


def test_vars_are_all_attributes() -> None:
    for event, plain in itertools.product(lazily(small()), [FunctionEvent(0, "", 0, 0, 0)]):
        assert vars(event).keys() == vars(plain).keys() | {"module_hierarchy"}
        assert all(getattr(event, name) is value for name, value in vars(event).items())


def test_the_list_itself_can_be_changed() -> None:
    events = lazily(small())
    first = events[0]

    events.sort(key=lambda event: event.name)
    del events[0]
    events.append(FunctionEvent(9, "mine", 0, 0, 1))

    assert [event.name for event in events] == ["inner", "k", "k", "outer", "mine"]
    assert events[3] is first


def test_an_unknown_sort_key_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="colour"):
        lazily(small()).table(sort_by="colour")


def test_other_attributes_sort_as_well() -> None:
    events = lazily(small())

    assert events.table(sort_by="name") == events.to_torch().table(sort_by="name")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda events: pickle.loads(pickle.dumps(events))])
def test_lists_can_be_copied_and_sent(again: Any) -> None:
    events = lazily(small())
    events[1].name = "renamed"

    assert repr(again(lazily(small()))) == repr(lazily(small()))
    assert repr(again(events)) == repr(events)
    assert again(events.key_averages()).table() == events.key_averages().table()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda event: pickle.loads(pickle.dumps(event))])
@pytest.mark.parametrize("change", [lambda _: None, lambda event: setattr(event, "time_range", Interval(1, 2))])
def test_events_can_be_copied_and_sent(again: Any, change: Any) -> None:
    events = lazily(small())
    event = events[1]
    event.input_shapes[0][0] = 7
    change(event)

    other = again(event)

    assert other is not event
    assert attributes(other) == attributes(event)
    assert other.input_shapes == [[7]]
    assert repr(other.cpu_parent) == repr(event.cpu_parent)


def test_an_event_that_is_told_another_time_has_that() -> None:
    event = lazily(small())[1]

    event.time_range.end = Microseconds(1014)

    assert (event.cpu_time_total, event.cpu_time) == (Microseconds(1004), 1.004)


def test_no_events_at_all() -> None:
    events = lazily(EventColumns(pl.DataFrame(schema=CPU), pl.DataFrame(schema=DEVICE)))

    assert (len(events), list(events), str(events), events.table(sort_by="count")) == (0, [], "", "")
    assert len(events.key_averages()) == 0
    assert events.self_cpu_time_total == 0
    assert events.total_average().key == "Total"
