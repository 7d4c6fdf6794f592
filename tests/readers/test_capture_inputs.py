"""Data of `record` about an op beside its label: inputs, stack, memory; from captures that are built by hand."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders.capture import BACKWARD, FRAME, ITT, NVTX, TORCH, USER, Capture
from opspan.tables.schema import TABLES

TYPES, STRIDES, VALUES = '["float", "Scalar", ""]', "[[3, 1], [], []]", "[null, 0.5, null]"


def read(capture: Capture, tmp_path: Path) -> opspan.Trace:
    return opspan.load(capture.write(tmp_path / "100-1.opspan"))


def test_inputs_and_stacks_are_columns(tmp_path: Path) -> None:
    capture = Capture()
    main = capture.thread(100)
    main.torch(
        "aten::mul", 1, 2, sizes="[[2, 3], [], []]", inputs=(TYPES, STRIDES, VALUES), stack="a.py(3): f\nb(1): g"
    )
    main.torch("aten::t", 3, 4, sizes="[[2, 3]]", inputs=('["float"]', "[[3, 1]]", None))
    main.torch("aten::ones", 5, 6)

    trace = read(capture, tmp_path)

    columns = ["name", "sizes", "input_types", "input_strides", "inputs", "stack", "domain", "color"]
    assert trace.ranges.select(columns).rows() == [
        ("aten::mul", "[[2, 3], [], []]", TYPES, STRIDES, VALUES, "a.py(3): f\nb(1): g", None, None),
        ("aten::t", "[[2, 3]]", '["float"]', "[[3, 1]]", None, None, None, None),
        ("aten::ones", None, None, None, None, None, None, None),
    ]
    first, second, _ = trace.events()
    assert first.concrete_inputs == [None, 0.5, None]
    assert first.input_dtypes == ["float", "Scalar", ""]
    assert first.structured_input_strides == [[3, 1], [], []]
    assert first.stack == ["b(1): g", "a.py(3): f"]
    assert second.concrete_inputs == [None]
    assert not trace.issues.height


def test_the_flags_are_for_torchs_ranges_alone(tmp_path: Path) -> None:
    capture = Capture()
    main = capture.thread(100)
    for source in (NVTX, USER):
        main.range("mine", 1, 2, source=source, inputs=("type", "strides", "lib"), stack="s")
    main.torch("MmBackward0", 1, 2, category=BACKWARD, forward=7)

    trace = read(capture, tmp_path)

    assert trace.ranges.select("inputs", "input_types", "input_strides", "stack").rows() == [(None,) * 4] * 3
    assert trace.ranges["domain"].to_list() == ["lib", "lib", None]
    assert trace.ranges["forward_tid"].to_list()[-1] == 7


def test_values_of_inputs_are_no_name(tmp_path: Path) -> None:
    """A frame without a name is called like its domain, and the values stand where others have that."""
    capture = Capture()
    main = capture.thread(100)
    main.range(None, 1, 2, kind=FRAME, source=TORCH, inputs=(TYPES, STRIDES, VALUES))
    main.range(None, 3, 4, kind=FRAME, source=ITT, domain="loop")

    trace = read(capture, tmp_path)

    assert trace.ranges.select("name", "domain", "inputs").rows() == [(None, None, VALUES), ("loop", "loop", None)]


def test_texts_that_are_not_in_the_file_are_counted(tmp_path: Path) -> None:
    capture = Capture()
    main = capture.thread(100)
    main.torch("aten::mm", 1, 2, inputs=(None, None, None), stack="f")
    unit = bytearray(main.units[0])
    unit[48:52] = unit[56:60] = unit[60:64] = (99).to_bytes(4, "little")
    main.units[0] = bytes(unit)

    trace = read(capture, tmp_path)

    assert trace.issues.select("code", "count").rows() == [("unknown_strings", 3)]
    assert trace.ranges.select("input_types", "input_strides", "stack").rows() == [(None, None, None)]


def test_a_file_of_version_1_reads_as_it_did(tmp_path: Path) -> None:
    capture = Capture(version=1)
    capture.thread(100).torch("aten::mm", 1, 2, sizes="[[2]]", seq=4)

    trace = read(capture, tmp_path)

    assert trace.ranges.select("name", "sizes", "seq", "inputs").rows() == [("aten::mm", "[[2]]", 4, None)]


def test_memory_is_a_table(tmp_path: Path) -> None:
    capture = Capture()
    main, other = capture.thread(100), capture.thread(101)
    main.torch("aten::ones", 10, 20)
    main.memory(15, 0, 4096, 400, 400)
    other.memory(16, 1, 4096, 400, 0)
    main.memory(17, 2, 0, 1 << 60)
    main.memory(18, 0, 8192, 7, 7, device=1)
    main.memory(19, 9, 1, 1)  # from a later version

    trace = read(capture, tmp_path)

    columns = ["tid", "device_id", "time_ns", "event", "bytes", "address", "total_bytes"]
    assert trace.memory.sort("time_ns").select(columns).rows() == [
        (100, None, 15, "alloc", 400, 4096, 400),
        (101, None, 16, "free", 400, 4096, 0),
        (100, None, 17, "out_of_memory", 1 << 60, 0, 0),
        (100, 1, 18, "alloc", 7, 8192, 7),
        (100, None, 19, None, 1, 1, 0),
    ]
    assert list(trace.memory.schema) == list(TABLES["memory"].schema)


def test_of_a_part_only_the_memory_of_that_part(tmp_path: Path) -> None:
    capture = Capture(open_ns=(0, 0))
    main = capture.thread(100)
    for time in range(0, 100, 10):
        main.torch("aten::ones", time, time + 5)
        main.memory(time, 0, time, 1)
    path = capture.write(tmp_path / "100-1.opspan")

    trace = opspan.load(path, between=(20, 40))

    assert trace.memory["time_ns"].to_list() == [20, 30]
