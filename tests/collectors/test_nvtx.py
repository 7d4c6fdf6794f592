"""Everything NVTX can say, said by a C program with NVIDIA's own headers, arrives in the capture."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.capture_units import (
    ASYNC,
    CLOSED,
    COUNTER,
    DOUBLE,
    END,
    HAS_COLOR,
    INT,
    MARK,
    NAME,
    NVTX,
    RANGE,
    SCHEMA,
    UINT,
    Capture,
    Unit,
)  # fmt: skip
from collectors.running import Collected


@pytest.fixture
def ran(collected: Collected, client: Callable[..., Path]) -> tuple[list[str], Capture]:
    out, err = collected.run(client("nvtx_calls.c"))
    assert err == ""
    return out.splitlines(), collected.capture()


def named(capture: Capture, name: str, kind: int | None = None) -> Unit:
    (unit,) = [unit for unit in capture.units(*([kind] if kind else [])) if unit.name == name]
    return unit


def test_returns_what_nvtx_promises(ran: tuple[list[str], Capture]) -> None:
    out, _ = ran

    core = ["push 0", "push 1", "push 2", "pop 2", "pop 1", "pop 0", "pop -1", "ids 1"]
    domains = ["same 1", "push 0", "push 1", "push 0", "push 0", "pop 1", "pop 0", "pop 0", "pop 0"]
    payloads = ["schemas 1", "empty 0", "push 0", "push 1", "pop 1", "pop 0", "enabled 1", "timestamp 1"]
    assert out == core + domains + payloads


def test_header_says_who_and_when(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran

    assert capture.state == CLOSED
    assert capture.producer == 2
    assert capture.lost == 0
    assert not capture.forked
    assert Path(capture.arguments[0]).name == "nvtx_calls"
    assert capture.path.name == f"{capture.pid}-{capture.clock[0]}.opspan"
    assert 0 < capture.clock[0] < capture.clock[2]
    # One clock is read after the other, and a busy machine may do something else between the two.
    assert abs((capture.clock[3] - capture.clock[1]) - (capture.clock[2] - capture.clock[0])) < 5_000_000_000


def test_ranges_of_the_default_domain(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    (tid,) = capture.threads

    assert tid == capture.pid
    assert capture.depths(tid)[:3] == [(0, "a"), (1, "wide ü€😀"), (2, "ex")]
    ex = named(capture, "ex")
    assert (ex.source, ex.domain, ex.category, ex.color) == (NVTX, 0, 7, 0xFF112233)
    assert ex.flags == HAS_COLOR | INT
    assert ex.value == -5
    assert all(unit.end_ns >= unit.start_ns for unit in capture.units(RANGE))
    assert all(capture.clock[0] <= unit.start_ns <= unit.end_ns <= capture.clock[2] for unit in capture.units(RANGE))


def test_marks_and_their_payloads(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    marks = [unit for unit in capture.units(MARK) if not unit.domain]

    assert [(unit.name, unit.flags & 3, unit.value) for unit in marks] == [
        ("u64", UINT, 2**64 - 1),
        ("double", DOUBLE, 0.5),
        ("i32", INT, -7),
        ("float", DOUBLE, 1.25),
        ("mark", 0, None),
        ("märk", 0, None),
        (None, 0, None),
        (None, 0, None),
        (None, INT, 11),
    ]


def test_start_end_ranges(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    first, second, third = (named(capture, name, ASYNC) for name in ("first", "second", "third"))
    ends = [capture.ended(unit) for unit in (first, third, second)]

    assert first.start_ns <= second.start_ns <= third.start_ns
    assert None not in ends
    assert ends == sorted(ends)  # type: ignore[type-var]
    assert first.end_ns == 0


def test_names_of_categories_and_threads(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    names = {(unit.what, capture.text(unit.domain), unit.whose, unit.name) for unit in capture.units(NAME)}

    assert names == {
        (1, None, capture.pid, "main thread"),
        (2, None, 7, "seven"),
        (2, None, 8, "ächt"),
        (2, "domain", 3, "three"),
        (2, "dömain", 3, "dréi"),
    }


def test_domains_and_registered_strings(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    ranges = [(capture.text(unit.domain), unit.name) for unit in capture.units(RANGE)]

    assert ranges[3:7] == [
        ("domain", "outer"), ("domain", "registered"), ("dömain", "registered"), (None, "default"),
    ]  # fmt: skip
    assert capture.text(named(capture, "régistered", MARK).domain) == "dömain"
    assert capture.text(named(capture, "async", ASYNC).domain) == "domain"


OP = struct.Struct("<qQQIB5s6x")


def schema(capture: Capture, name: str) -> tuple[Unit, list[tuple[object, ...]]]:
    unit = named(capture, name, SCHEMA)
    ((_, blob),) = unit.blobs
    entries = list(struct.iter_unpack("<4QII", blob))
    assert len(entries) == unit.entries
    return unit, [(capture.text(entry[4]), *entry[:4]) for entry in entries]


def test_schemas_are_described_with_offsets(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    mode, values = schema(capture, "mode")
    op, fields = schema(capture, "op")
    outer, nested = schema(capture, "outer")

    assert (mode.schema_type, mode.payload_bytes) == (0x100, 1)
    assert values == [("slow", 0, 0, 1, 0), ("fast", 1, 0, 2, 0)]
    assert (op.schema_type, op.payload_bytes, capture.text(op.domain)) == (1, OP.size, "payloads")
    assert fields == [
        ("seq", 0, 17, 0, 0),
        ("sizes", 0, 80, 8, 0),
        ("note", 1 << 10, 75, 16, 0),
        ("forward", 0, 16, 24, 0),
        ("mode", 0, mode.schema_id, 28, 0),
        ("tag", 0, 75, 29, 5),
    ]
    assert outer.schema_id == (1 << 24) + 5
    assert outer.payload_bytes == OP.size + 8
    assert nested == [("inner", 0, op.schema_id, 0, 0), ("x", 0, 20, OP.size, 0)]


def test_payloads_are_kept_with_texts_for_pointers(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    op = named(capture, "op", SCHEMA)
    outer = named(capture, "outer", SCHEMA)
    by_payload, by_attributes = [unit for unit in capture.units(RANGE) if capture.text(unit.domain) == "payloads"]

    def fields(blob: bytes) -> tuple[object, ...]:
        seq, sizes, note, *rest = OP.unpack(blob)
        return seq, capture.text(sizes), capture.text(note), *rest

    expected = (-3, "[[2, 4]]", "a note", 99, 2, b"tag!\0")
    assert (by_payload.name, by_payload.schema) == ("a note", op.schema_id)
    assert [(id_, fields(blob)) for id_, blob in by_payload.blobs] == [(op.schema_id, expected)] * 2  # push and pop
    # The message of a payload is said after the attributes' one, and so stands.
    assert (by_attributes.name, by_attributes.schema) == ("a note", outer.schema_id)
    (outer_id, blob), (text_type, text) = by_attributes.blobs
    assert outer_id == outer.schema_id
    assert fields(blob[: OP.size]) == expected
    assert struct.unpack("<d", blob[OP.size :]) == (2.5,)
    assert (text_type, text) == (75, b"free text\0")


def test_payloads_of_marks_and_start_end_ranges(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran
    mark, raw = [unit for unit in capture.units(MARK) if capture.text(unit.domain) == "payloads"]
    (started,) = [unit for unit in capture.units(ASYNC) if capture.text(unit.domain) == "payloads"]
    (ended,) = [unit for unit in capture.units(END) if unit.id == started.id]

    assert mark.name == started.name == "a note"
    assert mark.blobs == started.blobs == ended.blobs
    assert raw.blobs == [(1023, b"x" * 96), (1023, b"x" * 130)]


def test_counters(ran: tuple[list[str], Capture]) -> None:
    _, capture = ran

    samples = [(unit.name, capture.text(unit.domain), unit.flags, unit.value) for unit in capture.units(COUNTER)]
    assert samples == [
        ("loss", "payloads", INT, -4),
        ("loss", "payloads", DOUBLE, 0.25),
        ("loss", "payloads", DOUBLE, 8.0),
    ]
