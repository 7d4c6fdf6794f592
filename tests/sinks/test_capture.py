from __future__ import annotations

import ast
import json
from pathlib import Path

from builders import capture_units as units
from sinks.running import Native, drive


def captured(native: Native, folder: Path, program: str) -> tuple[units.Capture, str]:
    output = drive(native, f"folder = {str(folder)!r}\n{program}")
    (capture,) = units.read_folder(folder)
    return capture, output


def test_an_op_is_written_with_all_that_is_known_of_it(native: Native, tmp_path: Path) -> None:
    capture, output = captured(
        native,
        tmp_path,
        """
start_capture(folder)
begin(CAPTURE, 5, "aten::cat", sequence=7, sizes=[*several(tensor(2), NONE), NONE])
begin(CAPTURE, 6, "CatBackward0", kind=BACKWARD, sequence=7, forward_thread=1)
begin(CAPTURE, 7, "CatBackward0", kind=BACKWARD, forward_thread=9)
for key in (7, 6, 5):
    end(CAPTURE, key)
print(stop(CAPTURE))
""",
    )

    cat, known, unknown = capture.units(units.RANGE)
    assert (cat.name, cat.source, cat.category, cat.value, cat.id) == ("aten::cat", units.TORCH, 1, 7, 5)
    assert capture.text(cat.sizes) == "[[[2], []], []]"
    assert not cat.flags & units.HAS_FORWARD
    assert known.flags & units.HAS_FORWARD
    assert known.forward_tid == known.tid
    assert (unknown.forward_tid, unknown.value) == (0, None)
    assert unknown.flags & units.HAS_FORWARD
    assert cat.start_ns <= known.start_ns <= unknown.start_ns <= unknown.end_ns <= known.end_ns <= cat.end_ns
    assert "ranges=3" in output
    assert "lost=0" in output


def test_a_range_that_another_thread_ends_gets_the_true_time(native: Native, tmp_path: Path) -> None:
    capture, output = captured(
        native,
        tmp_path,
        """
import threading, time
start_capture(folder)
begin(CAPTURE, 1, "async", thread=1)
thread = threading.Thread(target=lambda: (begin(CAPTURE, 2, "other", thread=2), end(CAPTURE, 1, 1), end(CAPTURE, 2, 2)))
thread.start()
thread.join()
time.sleep(0.01)
begin(CAPTURE, 3, "next")
end(CAPTURE, 3)
print(stop(CAPTURE))
""",
    )

    ranges = {unit.name: unit for unit in capture.units(units.RANGE)}
    assert not ranges["async"].end_ns
    end = capture.ended(ranges["async"])
    assert end is not None
    assert ranges["other"].start_ns <= end <= ranges["other"].end_ns < ranges["next"].start_ns
    assert "late_ends=1" in output


def test_a_range_that_ends_out_of_order_gets_the_true_time(native: Native, tmp_path: Path) -> None:
    capture, _ = captured(
        native,
        tmp_path,
        """
start_capture(folder)
begin(CAPTURE, 1, "outer")
begin(CAPTURE, 2, "inner")
end(CAPTURE, 1)
end(CAPTURE, 2)
stop(CAPTURE)
""",
    )

    outer, inner = capture.units(units.RANGE)
    assert outer.start_ns <= inner.start_ns <= outer.end_ns <= inner.end_ns


def test_a_users_own_ranges_carry_what_they_say(native: Native, tmp_path: Path) -> None:
    capture, _ = captured(
        native,
        tmp_path,
        """
start_capture(folder)
native.opspan_push(own("load", category=b"io", color=0xff112233, payload=42), TO_ALL)
native.opspan_push(own("net.0", kind=MODULE, detail=b"Linear"), TO_ALL)
native.opspan_mark(own("here", payload=0.5), TO_ALL)
print(native.opspan_pop(TO_ALL), native.opspan_pop(TO_ALL))
id = native.opspan_range_start(own("async", detail=b"x"), TO_ALL)
native.opspan_range_end(id)
stop(CAPTURE)
""",
    )

    load, module = capture.units(units.RANGE)
    (mark,) = capture.units(units.MARK)
    (started,) = capture.units(units.ASYNC)
    assert (load.name, load.source, load.category, load.value, load.color) == ("load", units.USER, 4, 42, 0xFF112233)
    assert load.attributes == {"category": ["io"]}
    assert (module.name, module.category, module.attributes) == ("net.0", 5, {"class": ["Linear"]})
    assert (mark.name, mark.value) == ("here", 0.5)
    assert started.attributes == {"args": ["x"]}
    assert capture.ended(started) is not None


def test_a_fork_writes_a_file_of_its_own(native: Native, tmp_path: Path) -> None:
    drive(
        native,
        f"""
        import os
        start_capture({str(tmp_path)!r})
        begin(CAPTURE, 1, "across")
        if os.fork() == 0:
            begin(CAPTURE, 2, "child")
            end(CAPTURE, 2)
            end(CAPTURE, 1)
            stop(CAPTURE)
            os._exit(0)
        os.wait()
        begin(CAPTURE, 3, "parent")
        end(CAPTURE, 3)
        end(CAPTURE, 1)
        stop(CAPTURE)
        """,
    )

    names = {
        capture.forked: [(unit.name, bool(unit.end_ns)) for unit in capture.units(units.RANGE)]
        for capture in units.read_folder(tmp_path)
    }
    assert names == {False: [("across", True), ("parent", True)], True: [("child", True)]}


def test_a_folder_that_is_not_there_is_said(native: Native) -> None:
    assert "/nowhere" in drive(native, "print(start_capture('/nowhere'))")


def test_names_are_told_apart_by_their_letters_wherever_they_lie(native: Native, tmp_path: Path) -> None:
    """One address has one name after the other, one name lies at many; some are too long for the quick table."""
    names = ["aten::a", "aten::ab", "aten::a", "", "x" * 51, "x" * 52, "x" * 53, "y" * 5000, "aten::ab", "aten::b"]
    capture, _ = captured(
        native,
        tmp_path,
        f"""
import ctypes
names = {names!r}
here = ctypes.create_string_buffer(6000)
others = [ctypes.create_string_buffer(b"aten::a") for _ in range(1000)]
start_capture(folder)
for key, name in enumerate(names * 3, 1):
    here.value = name.encode()
    begin(CAPTURE, key, here)
    end(CAPTURE, key)
for key, other in enumerate(others * 2, 1000):
    begin(CAPTURE, key, other)
    end(CAPTURE, key)
stop(CAPTURE)
""",
    )

    assert [unit.name for unit in capture.units(units.RANGE)] == names * 3 + ["aten::a"] * 2000


def test_ops_are_what_was_told_of_each_however_alike_they_are(native: Native, tmp_path: Path) -> None:
    """The sink remembers fields that ranges share, and must never give one range the fields of another."""
    capture, output = captured(
        native,
        tmp_path,
        """
import ctypes, random
chance = random.Random(7)
int64s = lambda words: (ctypes.c_int64 * len(words))(*words)
types = (ctypes.c_char_p * 6)(b"", b"Scalar", b"ScalarList", b"TensorList", b"float", b"long")
names = [ctypes.create_string_buffer(name) for name in (b"aten::add", b"aten::add_", b"aten::mul")]
start_capture(folder)
for number in range(1, 6001):
    key = number if number % 50 else number + 2**33
    kind = chance.choice([OP, OP, BACKWARD])
    name = chance.choice(names) if kind == OP else chance.choice(["AddBackward0", "MulBackward0"])
    more, told = {}, []
    if chance.random() < 0.9:
        types_too = chance.random() < 0.7
        shapes = [[chance.randrange(3) for _ in range(chance.randrange(3))] for _ in range(chance.randrange(1, 3))]
        kinds = [4 + chance.randrange(2) if types_too else 0 for _ in shapes]
        words = [word for shape, of in zip(shapes, kinds) for word in (1 | of << 8 | len(shape) << 32, *shape)]
        values = [chance.randrange(3), chance.randrange(3)] if types_too and chance.random() < 0.5 else []
        if types_too:
            more["type_names"] = types
        if values:
            tagged = [0, 1, values[0], 1, values[1]]
            more |= {"values": int64s(tagged), "values_count": len(tagged)}
        more["sizes"] = words
        told = [str(shapes), [types[of].decode() for of in kinds] if types_too else None, values]
    sequence = chance.choice([-1, 5, number, 2**33])
    begin(CAPTURE, key, name, kind=kind, sequence=sequence, **more)
    end(CAPTURE, key)
    print(repr((key, name.value.decode() if kind == OP else name, kind, sequence, told)))
print(stop(CAPTURE))
""",
    )

    *told, _ = output.splitlines()
    ranges = capture.units(units.RANGE)
    assert len(ranges) == len(told) == 6000
    for unit, line in zip(ranges, told, strict=True):
        key, name, kind, sequence, inputs = ast.literal_eval(line)
        assert (unit.id, unit.name, unit.category, unit.value) == (key, name, kind, sequence if sequence >= 0 else None)
        sizes, types, values = inputs or (None, None, [])
        assert capture.text(unit.sizes) == sizes
        assert bool(unit.flags & units.HAS_INPUTS) == (types is not None)
        if types is not None:
            assert json.loads(capture.text(unit.color) or "") == types
            assert json.loads(capture.text(unit.domain) or "[]") == ([None, *values] if values else [])
