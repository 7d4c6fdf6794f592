"""Data of a capture beside labels: ITT ids, relations and metadata, counters, NVTX payloads."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from builders import capture as build
from builders.capture import ITT, NOTHING, Capture
from opspan.readers.capture import chunks
from readers.loading import load, rows

# --- ITT


def test_parents_relations_and_attributes_from_afar(tmp_path: Path) -> None:
    made = Capture()
    main, other = made.thread(100), made.thread(101)
    one, two = (1, 5, 0), (2, 5, 0)
    first = main.range("one", 1, 9, source=ITT, domain="d")
    main.ids(first, one)
    second = other.range("two", 2, 8, source=ITT, domain="d")
    other.ids(second, two, one)
    other.relation(3, two, 1, one)
    other.relation(4, two, 5, (9, 9, 9))
    afar = other.ids(NOTHING, one)
    other.attribute(afar, "late", 1, 2, 3, by_id=True)

    trace = load(made, tmp_path)

    assert rows(trace.ranges, "id", "name", "parent_id", "payload_json") == [
        (0, "one", None, '{"late": [1, 2, 3]}'),
        (1, "two", 0, None),
    ]
    assert rows(trace.relations, "range_id", "relation", "other_id", "time_ns") == [
        (1, "is_dependent_on", 0, 3),
        (1, "is_child_of", None, 4),
    ]
    assert rows(trace.issues, "code", "count") == [("dangling_relations", 1)]


@pytest.mark.parametrize("units", [1, 4, 1000])
def test_an_id_means_the_last_task_that_bore_it_in_pieces_of_any_size(
    units: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIECE_BYTES", "BLOCK_BYTES"):
        monkeypatch.setattr(chunks, name, build.UNIT * units)
    made = Capture()
    main = made.thread(100)
    for start in (10, 30):
        main.ids(main.range(f"task {start}", start, start + 9, source=ITT), (1, 0, 0))
        main.ids(main.range("child", start + 1, start + 2, source=ITT), (2, 0, start), (1, 0, 0))

    assert load(made, tmp_path).ranges["parent_id"].to_list() == [None, 0, None, 2]


def test_an_id_of_no_range_is_counted(tmp_path: Path) -> None:
    made = Capture()
    made.thread(100).ids(77, (1, 0, 0))

    assert rows(load(made, tmp_path).issues, "code", "count") == [("dangling_data", 1)]


def test_metadata_of_an_own_task_that_has_another_type_is_the_users(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    task = main.range("aten::mm", 1, 9, source=ITT, domain="opspan")
    main.attribute(task, "seq", 5)
    main.attribute(task, "kind", "mine")
    main.attribute(task, "op_id", 0.5)

    trace = load(made, tmp_path)

    assert rows(trace.ranges, "seq", "op_id", "payload_json") == [(5, None, '{"kind": "mine", "op_id": 0.5}')]


def test_attributes_of_every_type(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    unit = main.range("task", 1, 2, source=ITT, domain="d")
    main.attribute(unit, "int", -1)
    main.attribute(unit, "uint", 2**64 - 1, unsigned=True)
    main.attribute(unit, "floats", 0.5, float("inf"))
    main.attribute(unit, 'a "key"\n', 'text "q" \u2603\n')
    main.attribute(unit, "raw", b"\x00\xff")
    for part in ((1, 2, 3, 4, 5), (6,)):  # more than a unit has room for
        main.attribute(unit, "many", *part)

    (text,) = load(made, tmp_path).ranges["payload_json"]

    assert json.loads(text) == {
        "int": -1,
        "uint": 2**64 - 1,
        "floats": [0.5, "inf"],
        'a "key"\n': 'text "q" \u2603\n',
        "raw": "00ff",
        "many": [1, 2, 3, 4, 5, 6],
    }


def test_counters_and_pauses(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    main.counter(1, "depth", -3, domain="d")
    main.counter(2, "depth", 0.5)
    main.counter(3, "bytes", 2**63 + 2**40, unsigned=True)
    main.state(4, resumed=False)
    main.state(5, resumed=True)

    trace = load(made, tmp_path)

    assert rows(trace.counters, "time_ns", "name", "domain", "value") == [
        (1, "depth", "d", -3.0),
        (2, "depth", None, 0.5),
        (3, "bytes", None, float(2**63 + 2**40)),
        (4, "collecting", None, 0.0),
        (5, "collecting", None, 1.0),
    ]
    assert rows(trace.issues, "code") == [("rounded_counters",), ("pause_asked_for",)]


# --- NVTX's extended payloads


def payload_json(made: Capture, folder: Path) -> dict:
    (text,) = load(made, folder).ranges["payload_json"]
    return json.loads(text)


def test_payloads_of_other_schemas_become_json(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    main.schema(5001, "pair", [("x", 5, 0), ("y", 19, 4)], domain="lib", size=8)
    main.schema(5002, "colour", [("red", 0, 1), ("green", 0, 2)], domain="lib", size=4, kind=build.ENUM)
    entries = [
        ("bytes", 18, 0),
        ("who", 80, 8),
        ("letters", 1, 16, 16, 8),
        ("ratio", 20, 24),
        ("pair", 5001, 32),
        ("colour", 5002, 40),
        ("three", 13, 44, 16, 3),
        (None, 12, 50),
    ]
    main.schema(5000, "op", entries, domain="lib", size=56)
    unit = main.range("send", 1, 2, domain="lib", schema=5000)
    who = made.text('comm "1"')
    main.blob(
        unit,
        struct.pack("<QQ8sdifI3hB", 2**64 - 1, who, b"abc\0zz", 2.5, -7, 0.5, 2, 1, -2, 3, 9).ljust(56, b"\0"),
        5000,
    )

    assert payload_json(made, tmp_path) == {
        "bytes": 2**64 - 1,
        "who": 'comm "1"',
        "letters": "abc",
        "ratio": 2.5,
        "pair": {"x": -7, "y": 0.5},
        "colour": "green",
        "three": [1, -2, 3],
        "field7": 9,
    }


def test_what_the_end_of_a_range_carries_belongs_to_the_range(tmp_path: Path) -> None:
    made = Capture()
    main, other = made.thread(100), made.thread(101)
    main.schema(5000, "op", [("a", 17, 0)], size=8)
    begun = main.range("send", 1, kind=build.ASYNC, identity=7, schema=5000)
    main.blob(begun, struct.pack("<q", 1), 5000)
    ended = other.end(5, 7)
    other.blob(ended, struct.pack("<q", 2), 5000)
    lost = other.end(6, 8)  # there is no such range
    other.blob(lost, struct.pack("<q", 3), 5000)

    trace = load(made, tmp_path)

    assert json.loads(trace.ranges["payload_json"].item()) == {"a": 1, "op": {"a": 2}}
    assert rows(trace.issues, "code", "count") == [("end_without_start", 1), ("dangling_data", 1)]


def test_several_payloads_of_a_range_do_not_overwrite_each_other(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    main.schema(5000, "op", [("a", 17, 0)], size=8)
    unit = main.range("send", 1, 2, schema=5000)
    main.blob(unit, struct.pack("<q", 1), 5000)
    main.blob(unit, struct.pack("<q", 2), 5000)
    main.blob(unit, struct.pack("<2q", 3, 4), 17)  # just numbers of one of NVTX's own types

    assert payload_json(made, tmp_path) == {"a": 1, "op": {"a": 2}, "payload": {"payload": [3, 4]}}


def test_a_payload_without_its_schema_is_kept_as_bytes(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    main.blob(main.range("send", 1, 2, schema=77777), bytes(range(60)), 77777)

    trace = load(made, tmp_path)

    assert json.loads(trace.ranges["payload_json"][0]) == {"bytes": bytes(range(60)).hex()}
    assert rows(trace.issues, "code", "count") == [("undecoded_payload", 1)]


def test_schemas_of_the_same_number_in_two_domains_are_two(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    for domain in ("one", "two"):
        main.schema(5000, "op", [(f"of {domain}", 17, 0)], domain=domain, size=8)
        main.blob(main.range("r", 1, 2, domain=domain, schema=5000), struct.pack("<q", 1), 5000)

    found = load(made, tmp_path).ranges["payload_json"].to_list()

    assert found == ['{"of one": 1}', '{"of two": 1}']
