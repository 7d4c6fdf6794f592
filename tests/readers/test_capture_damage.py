"""Damaged captures: a Trace with issues or one clear error, and never anything else."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders import capture as build
from builders.capture import Capture
from opspan.errors import NotATrace, NotReadable, OpspanError, ReadError, StrictError, TooNew, Truncated
from opspan.readers.capture.bytes import HEADER
from tiers import before_release

PAGE = build.PAGE


def rich_capture() -> Capture:
    """Something of everything, over several chunks."""
    made = Capture(pid=100)
    main, other = made.thread(100, "main"), made.thread(101, "worker")
    main.schema(4096, "opspan.op", build.OWN_ENTRIES, domain="opspan", size=32)
    main.schema(
        4097, "other", [("a", 17, 0), ("t", 80, 8), ("n", 4098, 16), ("c", 1, 24, 16, 8)], domain="lib", size=32
    )
    main.schema(4098, "nested", [("x", 5, 0), ("y", 19, 4)], domain="lib", size=8)
    main.name_category(3, "io", "lib")
    main.name_thread(101, "loader")
    for i in range(40):
        main.torch(f"aten::op{i % 5}", 100 * i, 100 * i + 50, seq=i, op_id=i + 1, sizes="[[2, 3]]")
        inputs = ('["float", "Scalar"]', "[[3, 1], []]", f"[null, {i}]")
        main.torch("aten::sum", 100 * i + 10, 100 * i + 20, inputs=inputs, stack=f"a.py({i}): f\na.py(1): g")
        main.memory(100 * i + 15, i % 3, 4096 * i, 64, 64 * i, None if i % 4 else 0)
        main.range(f"aten::mm, seq = {i}, sizes = [[2]]", 100 * i + 1, 100 * i + 9)
        unit = main.range("aten::add", 100 * i + 2, 100 * i + 8, domain="opspan", category=1, schema=4096)
        main.blob(unit, build.own_payload(i, i + 1, 0, 1, made.text("[[4]]")), 4096)
        unit = main.range("copy", 100 * i + 3, 100 * i + 7, domain="lib", category=3, schema=4097)
        main.blob(unit, struct.pack("<qQif8s", i, made.text("ü"), 7, 0.5, b"abc"), 4097)
        task = other.range("aten::mm", 100 * i, 100 * i + 9, source=build.ITT, domain="opspan")
        other.ids(task, (i + 1, 5, 0), (i, 5, 0))
        other.attribute(task, "seq", i)
        other.attribute(task, "more", 1.5, 2.5)
        other.relation(100 * i, (i + 1, 5, 0), 1, (i, 5, 0))
        other.range("async", 100 * i, kind=build.ASYNC, identity=i)
        main.end(100 * i + 60, i)
        opened = other.range("far", 100 * i + 1)
        main.foreign_end(100 * i + 70, 101, opened)
        other.counter(100 * i, "depth", i)
    other.state(1, resumed=False)
    return made


@pytest.fixture(scope="module")
def whole() -> bytes:
    return rich_capture().to_bytes()


def read(path: Path, raw: bytes) -> opspan.Trace:
    path.write_bytes(raw)
    return opspan.load(path)


def codes(trace: opspan.Trace) -> set[str]:
    return set(trace.issues["code"])


def test_the_capture_is_sound_before_it_is_damaged(whole: bytes, tmp_path: Path) -> None:
    trace = read(tmp_path / "a.opspan", whole)

    assert trace.ranges.height == 320
    assert codes(trace) == {"pause_asked_for", "dangling_relations"}  # op 0 is nobody's


@pytest.mark.slow
@pytest.mark.parametrize("seed", before_release(range(6), kept=1))
def test_flipped_bytes_never_raise_anything_else(whole: bytes, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    heads = list(range(PAGE, len(whole), PAGE))
    for _ in range(40):
        raw = bytearray(whole)
        for _ in range(chance.choice([1, 3, 30])):
            # As often in the heads, where a flip does most, as anywhere else.
            near = (
                chance.choice([*heads, 0]) + chance.randrange(64)
                if chance.random() < 0.5
                else chance.randrange(len(raw))
            )
            raw[near] = chance.choice([raw[near] ^ (1 << chance.randrange(8)), 0, 0xFF])
        try:
            trace = read(tmp_path / "a.opspan", bytes(raw))
        except OpspanError:
            continue
        assert repr(trace)


@pytest.mark.slow
@pytest.mark.parametrize("seed", before_release(range(4), kept=1))
def test_words_of_hostile_values_never_raise_anything_else(whole: bytes, tmp_path: Path, seed: int) -> None:
    chance = random.Random(1000 + seed)
    words = [0, 1, -1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63)]
    for _ in range(40):
        raw = bytearray(whole)
        for _ in range(chance.choice([1, 10, 100])):
            at = chance.randrange(PAGE // 8, len(raw) // 8) * 8
            raw[at : at + 8] = struct.pack("<q", chance.choice(words))
        try:
            assert repr(read(tmp_path / "a.opspan", bytes(raw)))
        except OpspanError:
            continue


@pytest.mark.slow
def test_every_truncation_reads_what_is_left(whole: bytes, tmp_path: Path) -> None:
    chance = random.Random(5)
    cuts = [*range(0, len(whole), PAGE), *(chance.randrange(len(whole)) for _ in range(80))]
    heights = {}
    for cut in cuts:
        try:
            trace = read(tmp_path / "a.opspan", whole[:cut])
        except (NotATrace, Truncated):
            assert cut < HEADER.size  # the header itself is cut
            continue
        heights[cut] = trace.ranges.height
        assert "truncated_file" in codes(trace) or cut % PAGE == 0
    # More bytes are never fewer ranges.
    assert [heights[cut] for cut in sorted(heights)] == sorted(heights.values())
    assert max(heights.values()) == 320


def test_strict_reading_of_a_cut_file_says_what_is_wrong(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.opspan"
    path.write_bytes(whole[: len(whole) - 1000])

    with pytest.raises(StrictError, match="missing at its end"):
        opspan.load(path, strict=True)


def test_strict_reading_allows_what_is_only_worth_knowing(tmp_path: Path) -> None:
    made = Capture(state=0, close_ns=(0, 0))
    made.thread(100).torch("aten::mm", 1)

    trace = opspan.load(made.write(tmp_path / "a.opspan"), strict=True)

    assert codes(trace) == {"not_closed", "open_ranges"}


@pytest.mark.parametrize("size", [12, PAGE])
def test_a_newer_version_is_refused_by_name_however_little_is_there(size: int, tmp_path: Path) -> None:
    with pytest.raises(TooNew, match=r"version 7; this opspan reads up to 5"):
        read(tmp_path / "a.opspan", Capture(version=7).to_bytes()[:size])


def test_a_chunk_with_a_damaged_head_is_skipped_and_the_next_is_read(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    for i in range(200):  # 126 in the first chunk
        main.torch("aten::mm", i + 1, i + 2, seq=i)
    raw = bytearray(made.to_bytes())
    raw[PAGE : PAGE + 4] = b"JUNK"

    trace = read(tmp_path / "a.opspan", bytes(raw))

    assert trace.ranges["seq"].to_list() == list(range(126, 200))
    assert "damaged_file" in codes(trace)


def test_unwritten_units_are_not_read(tmp_path: Path) -> None:
    made = Capture(spare_units=50)
    main = made.thread(100)
    main.torch("aten::mm", 1, 2)
    main.put(0, 0, 0, 0, bytes(range(56)))  # being written: its first word is still zero

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert trace.ranges.height == 1
    assert trace.issues.is_empty()


def test_texts_that_are_not_utf8_are_read_with_replacements(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    made.text(b"caf\xe9")
    main.range("fine", 1, 2)
    unit = main.range(None, 3, 4)
    main.units[unit] = main.units[unit][:4] + struct.pack("<I", 1) + main.units[unit][8:]

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert trace.ranges["name"].to_list() == ["fine", "caf\ufffd"]
    assert trace.issues.filter(pl.col("code") == "undecoded_text")["count"].to_list() == [1]


def test_a_chunk_may_be_full_of_texts(tmp_path: Path) -> None:
    made = Capture()
    long = "a" * (PAGE - build.UNIT - 8)  # takes the whole first chunk of texts
    made.thread(100).range(long, 1, 2)
    made.threads[0].range("b", 3, 4)

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert trace.ranges["name"].to_list() == [long, "b"]
    assert trace.issues.is_empty()


def test_missing_texts_are_nulls_and_an_error_issue(tmp_path: Path) -> None:
    made = Capture()
    unit = made.thread(100).range("gone", 1, 2)
    made.threads[0].units[unit] = made.threads[0].units[unit].replace(struct.pack("<I", 1), struct.pack("<I", 9), 1)

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert trace.ranges["name"].to_list() == [None]
    assert "unknown_strings" in codes(trace)


def test_an_end_before_its_start_becomes_null(tmp_path: Path) -> None:
    made = Capture()
    made.thread(100).torch("aten::mm", 20, 10)

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert trace.ranges["end_ns"].to_list() == [None]
    assert codes(trace) == {"negative_duration"}


def test_a_database_is_described_by_its_tables_and_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "people.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table people (name)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(NotATrace, match=r"a SQLite database that no profiler known to opspan wrote \(tables people\)"):
        opspan.load(path)

    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["people.db"]


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="No such file"):
        opspan.load(tmp_path / "missing")
    with pytest.raises(NotATrace, match="an empty folder"):
        opspan.load(tmp_path)
    with pytest.raises(NotReadable):
        opspan.load("a\0b")


def test_a_folder_keeps_what_is_readable_and_says_what_is_not(tmp_path: Path) -> None:
    made = Capture()
    made.thread(100).torch("aten::mm", 1, 2)
    made.write(tmp_path / "100-1.opspan")
    (tmp_path / "101-2.opspan").write_bytes(bytes(PAGE))

    trace = opspan.load(tmp_path)

    assert trace.ranges.height == 1
    assert trace.issues["code"].to_list() == ["unreadable_file"]


def test_a_folder_without_anything_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "101-2.opspan").write_bytes(bytes(PAGE))

    with pytest.raises(ReadError, match="holds no readable capture"):
        opspan.load(tmp_path)


@pytest.mark.slow
def test_a_file_that_is_cut_while_it_is_read_is_no_crash(whole: bytes, tmp_path: Path) -> None:
    program = """
import os, sys
import opspan
from opspan.readers.capture import chunks

path, keep = sys.argv[1], int(sys.argv[2])
texts = chunks._texts
def cut_first(*arguments):  # the chunks were found, and are not read yet
    os.truncate(path, keep)
    return texts(*arguments)
chunks._texts = cut_first
trace = opspan.load(path)
print(trace.ranges.height, *trace.issues["code"])
"""
    for keep in (0, PAGE, PAGE + 100, len(whole) // 2):
        path = tmp_path / f"{keep}.opspan"
        path.write_bytes(whole)
        done = subprocess.run(
            [sys.executable, "-c", program, path, str(keep)], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "truncated_file" in done.stdout


@pytest.mark.parametrize("kind", [200, build.RANGE, build.MARK])
def test_ranges_like_others_that_are_gone_are_counted_and_left_out(tmp_path: Path, kind: int) -> None:
    made = Capture()
    main = made.thread(100)
    numbers = [main.torch("aten::mm", 10 * i, 10 * i + 5, sizes="[[2]]") for i in range(5)]
    (model,) = (number for number, unit in main.units.items() if unit[0] == build.MODEL)
    main.units[model] = bytes([kind]) + main.units[model][1:]

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert set(trace.ranges["start_ns"]) == {0}
    assert trace.issues.filter(code="damaged_file")["count"].to_list() == [len(numbers) - 1]


def test_a_model_is_found_from_far_away_and_in_a_later_piece(tmp_path: Path) -> None:
    made = Capture()
    main = made.thread(100)
    main.first = (1 << 32) - 100  # as in a rolling recording that has gone on for long
    for i in range(300):
        main.torch("aten::mm", 10 * i, 10 * i + 5, sizes="[[2]]" if i % 3 else "[[4]]")

    trace = opspan.load(made.write(tmp_path / "a.opspan"))

    assert trace.ranges["sizes"].to_list() == [f"[[{2 if i % 3 else 4}]]" for i in range(300)]
    assert trace.issues["message"].to_list() == [
        "parts of the file are damaged and were skipped (1): chunks out of order"
    ]
