"""The installed torch's own classes over the same values say the same, character for character."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings

pytest.importorskip("torch", "2.13", reason="the face is that of torch 2.13 and later: older classes say less")

import hypothesis.strategies as st
from torch.autograd import profiler_util as theirs

from events.pairs import (
    GROUPINGS,
    SORT_KEYS,
    TABLE_OPTIONS,
    attributes,
    files_of,
    lists_of_specs,
    pair,
    said,
    torchs_averages,
    torchs_table,
    without_nan,
)
from opspan import events as ours

EVERY = (False, 0, False, True)
BY_NAME = {"metadata_json"}  # torch before 2.14 lacks it as a positional argument; ours takes it by name only
SWITCHES = st.fixed_dictionaries({"profile_memory": st.booleans(), "with_flops": st.booleans()})


@pytest.mark.slow
@settings(max_examples=150)
@given(lists_of_specs(), SWITCHES, TABLE_OPTIONS, st.booleans())
def test_tables(specs: list[dict[str, Any]], switches: dict[str, bool], options: dict[str, Any], tree: bool) -> None:
    mine, torchs = pair(specs, use_device=specs[0]["use_device"] if specs else None, **switches)
    if tree:
        mine._build_tree()
        torchs._build_tree()

    assert mine.table(**options) == torchs_table(torchs, **options)
    assert str(mine) == torchs_table(torchs)


@pytest.mark.slow
@settings(max_examples=150)
@given(lists_of_specs(), SWITCHES, GROUPINGS, TABLE_OPTIONS)
def test_averages(
    specs: list[dict[str, Any]], switches: dict[str, bool], grouping: tuple[Any, ...], options: dict[str, Any]
) -> None:
    mine, torchs = pair(specs, use_device=specs[0]["use_device"] if specs else None, **switches)
    mine._build_tree()
    torchs._build_tree()
    averages, expected = mine.key_averages(*grouping), torchs_averages(torchs, grouping)

    assert [attributes(one) for one in averages] == [attributes(one) for one in expected]
    assert repr(averages) == without_nan(repr(expected))
    assert averages.table(**options) == torchs_table(expected, **options)


@pytest.mark.slow
@settings(max_examples=200)
@given(lists_of_specs(), st.booleans())
def test_events_totals_and_trees(specs: list[dict[str, Any]], tree: bool) -> None:
    mine, torchs = pair(specs)
    if tree:
        mine._build_tree()
        torchs._build_tree()

    assert repr(mine) == repr(torchs)
    assert [attributes(event) for event in mine] == [attributes(event) for event in torchs]
    assert mine.self_cpu_time_total == torchs.self_cpu_time_total
    expected = attributes(torchs.total_average())
    if not specs:
        expected["is_user_annotation"] = False  # torch's has none before an event was added
    assert attributes(mine.total_average()) == expected
    assert repr(mine.total_average()) == repr(torchs.total_average())


@pytest.mark.slow
@settings(max_examples=100)
@given(lists_of_specs())
def test_exports(tmp_path_factory: pytest.TempPathFactory, specs: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("exports")
    mine, torchs = pair(specs, use_device="xpu")
    assume(not specs or any(event.trace_name is not None for event in mine))  # else torch cuts off what is not there

    assert files_of(mine, folder) == files_of(torchs, folder)


@pytest.mark.slow
@settings(max_examples=100)
@given(lists_of_specs(), TABLE_OPTIONS)
def test_to_torch_gives_torchs_list(specs: list[dict[str, Any]], options: dict[str, Any]) -> None:
    mine, torchs = pair(specs, profile_memory=True, with_flops=True)
    mine._build_tree()
    torchs._build_tree()
    given_over = mine.to_torch()

    assert type(given_over) is theirs.EventList
    assert all(type(event) is theirs.FunctionEvent for event in given_over)
    assert [vars(event).keys() for event in given_over] == [vars(event).keys() for event in torchs]
    assert [attributes(event) for event in given_over] == [attributes(event) for event in torchs]
    assert said(lambda: given_over.table(**options)) == said(lambda: torchs.table(**options))
    averages = mine.key_averages(*EVERY).to_torch()
    assert [attributes(one) for one in averages] == [attributes(one) for one in torchs_averages(torchs, EVERY)]


@pytest.mark.parametrize("key", SORT_KEYS)
def test_every_sort_key_sorts_as_torch_does(key: str) -> None:
    base = {
        "id": 1,
        "thread": 0,
        "use_device": "cuda",
        "stack": [],
        "input_shapes": [],
        "flops": 0,
        "overload_name": "",
    }
    specs = [
        {**base, "name": "a", "start_us": 0, "end_us": 90, "cpu_memory_usage": 7, "kernels": [("k", 0, 4)]},
        {**base, "name": "b", "start_us": 10, "end_us": 60, "device_memory_usage": 9, "kernels": [("k", 0, 5)]},
        {**base, "name": "b", "start_us": 70, "end_us": 80, "cpu_memory_usage": 3},
        {**base, "name": "k", "start_us": 20, "end_us": 29, "device_type": 1},
    ]
    mine, torchs = pair(specs, use_device="cuda", profile_memory=True)
    mine._build_tree()
    torchs._build_tree()

    assert mine.table(sort_by=key) == torchs.table(sort_by=key)
    assert mine.key_averages().table(sort_by=key) == torchs.key_averages().table(sort_by=key)


def test_the_faces_are_the_same() -> None:
    """Our classes have everything that torch's have, with the same arguments in the same order."""
    import inspect

    for name in (
        "EventList",
        "FunctionEvent",
        "FunctionEventAvg",
        "Interval",
        "Kernel",
        "MemRecordsAcc",
        "StringTable",
    ):
        mine, torchs = getattr(ours, name), getattr(theirs, name)
        missing = {attribute for attribute in dir(torchs) if not attribute.startswith("_")} - set(dir(mine))
        assert not missing - {"sort"}, f"{name}: {missing}"
    for cls, method in [("FunctionEvent", "__init__"), ("EventList", "table"), ("EventList", "key_averages")]:
        mine, torchs = (inspect.signature(getattr(getattr(side, cls), method)) for side in (ours, theirs))
        expected = {one.name: repr(one.default) for one in torchs.parameters.values()}
        found = {one.name: repr(one.default) for one in mine.parameters.values() if one.name in expected}
        assert found == expected
        assert [name for name in found if name not in BY_NAME] == [name for name in expected if name not in BY_NAME]
    assert [name for name in ours.EventMetadata._fields if name in theirs.EventMetadata._fields] == [
        *theirs.EventMetadata._fields
    ]
    assert ours.Kernel._fields == theirs.Kernel._fields
    assert {one.name: one.value for one in ours.DeviceType} == {
        name: int(value) for name, value in type(theirs.DeviceType.CPU).__members__.items()
    }
    assert ours.DeviceType.CUDA == theirs.DeviceType.CUDA != ours.DeviceType.CPU


def test_names_of_every_release_are_there() -> None:
    """torch 2.15 has `metadata`, and `event_metadata` as a property; before, there was `metadata_json`."""
    event = ours.FunctionEvent(
        1, "k", 0, 0, 1, metadata_json='{"grid": 1}', typed_metadata={"grid": 1}, extra_meta={"grid": "[1]"}
    )

    assert event.metadata == {"grid": 1}
    with pytest.warns(FutureWarning, match="Use `metadata`"):
        assert event.metadata_json == '{"grid": 1}'
    with pytest.warns(FutureWarning, match="Use `metadata`"):
        assert event.event_metadata.grid == [1]


def test_pythons_functions_are_averaged_only_if_asked_for() -> None:
    base = {"thread": 0, "start_us": 0, "end_us": 1}
    mine, _ = pair([{**base, "id": 1, "name": "f", "is_python_function": True}, {**base, "id": 2, "name": "op"}])
    mine._build_tree()

    assert [one.key for one in mine.key_averages()] == ["op"]
    assert [one.key for one in mine.key_averages(include_python_functions=True)] == ["f", "op"]


NAMES = ["_ZN2at6native3addEv", "aten::mm", "t", "Pi", "", "_ZN", "St6vectorIiSaIiEE", "void f<int>()", "f", "ab", "né"]


@pytest.mark.parametrize("name", NAMES)
def test_string_tables_demangle_alike(name: str) -> None:
    assert ours.StringTable()[name] == theirs.StringTable()[name]


class Record:
    def __init__(self, time: int) -> None:
        self.time = time

    def start_ns(self) -> int:
        return self.time


@given(st.lists(st.integers(0, 9)), st.integers(-1, 9), st.integers(-1, 10))
def test_memory_records_in_an_interval(times: list[int], start: int, end: int) -> None:
    records = [[Record(time), False] for time in times]

    found = list(ours.MemRecordsAcc(records).in_interval(start, end))

    assert found == list(theirs.MemRecordsAcc(records).in_interval(start, end))


METADATA = {
    "grid": "[1, 2, 3]",
    "registers per thread": "32",
    "Is asynchronized op": "true",
    "dtype": '"Float"',
    "?": "1",
}


@pytest.mark.parametrize(
    "extra", [METADATA, METADATA | {"?": "1"}, {}, None, {"occupancy": '{"a": 1}', "blocks per SM": "0.5"}]
)
def test_metadata(extra: dict[str, str] | None) -> None:
    spec = {"id": 1, "name": "k", "thread": 0, "start_us": 0, "end_us": 1, "extra_meta": extra}
    mine, torchs = pair([spec])

    assert attributes(mine[0]) == attributes(torchs[0])


def test_exports_refuse_other_metrics(tmp_path: Path) -> None:
    mine, torchs = pair([])
    for events in (mine, torchs):
        with pytest.raises(ValueError, match="metric should be one of"):
            events.export_stacks(str(tmp_path / "x"), "count")
