"""The segments of a rolling recording read as the one file that they are pieces of."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import opspan
from builders.capture import ASYNC, PAGE, USER, Capture
from opspan.readers.capture import reading
from readers.loading import codes, load, rows

VERSION_AT, SESSION_AT, SEGMENT_AT = 8, 3216, 3228


def made() -> Capture:
    """Ranges of two threads, some of which another thread ends, and start/end ranges."""
    capture = Capture(spare_units=0)
    threads = [capture.thread(100, "main", 63), capture.thread(101, "other", 63)]
    numbers = random.Random(7)
    for i in range(400):
        mine, other = threads if numbers.random() < 0.5 else threads[::-1]
        unit = mine.torch(f"op {i % 70}", 10 * i + 1, None if i % 9 == 0 else 10 * i + 5, seq=i, sizes=f"[[{i % 50}]]")
        if i % 18 == 0:
            other.foreign_end(10 * i + 7, mine.tid, unit)
        mine.range(f"start {i % 5}", 10 * i + 2, kind=ASYNC, source=USER, identity=i + 1)
        if i >= 150:
            other.end(10 * i + 8, i - 149, source=USER)
    return capture


def cut(capture: Capture, folder: Path, pieces: int) -> list[Path]:
    """The chunks of the file in so many files. Each of them begins with its own share of the texts."""
    folder.mkdir()
    chunks = capture.chunks()
    events, texts = chunks[:-2], chunks[-2:]
    paths = []
    for piece in range(pieces):
        header = bytearray(capture.header())
        struct.pack_into("<I", header, VERSION_AT, 3)
        struct.pack_into("<qI", header, SESSION_AT, 1_000, capture.pid)
        struct.pack_into("<I", header, SEGMENT_AT, piece + 1)
        mine = [*texts[piece : piece + 1], *_share(events, piece, pieces)]
        path = folder / f"100-1000.{piece + 1:06}.opspan"
        path.write_bytes(bytes(header) + b"".join(mine))
        assert path.stat().st_size % PAGE == 0
        paths.append(path)
    return paths


def _share(chunks: list[bytes], piece: int, pieces: int) -> list[bytes]:
    return chunks[len(chunks) * piece // pieces : len(chunks) * (piece + 1) // pieces]


@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_they_read_as_the_file_that_they_are_pieces_of(pieces: int, tmp_path: Path) -> None:
    whole = load(made(), tmp_path)
    cut(made(), tmp_path / "segments", pieces)

    found = opspan.load(tmp_path / "segments")

    for name in ("ranges", "threads", "processes", "relations"):
        assert_frame_equal(found.frames[name], whole.frames[name])
    assert codes(found) == codes(whole)
    assert found.ranges.filter(found.ranges["end_tid"].is_not_null()).height > 20


def test_without_the_first_ones_the_rest_is_as_it_was_and_nothing_is_wrong(tmp_path: Path) -> None:
    whole = load(made(), tmp_path)
    paths = cut(made(), tmp_path / "segments", 4)
    # Every text is in the segments that stay: the writer writes again what it uses again.
    texts = b"".join(made().chunks()[-2:])
    for path in paths[:2]:
        path.unlink()
    paths[2].write_bytes(paths[2].read_bytes() + texts)

    found = opspan.load(tmp_path / "segments")

    columns = ("tid", "start_ns", "name", "sizes")
    kept = rows(found.ranges, *columns)
    assert 300 < len(kept) < whole.ranges.height
    assert set(kept) <= set(rows(whole.ranges, *columns))
    ended = found.ranges.drop_nulls("end_ns")
    assert set(rows(ended, *columns, "end_ns", "end_tid")) <= set(rows(whole.ranges, *columns, "end_ns", "end_tid"))
    assert set(codes(found)) <= set(codes(whole))


def test_segments_of_two_processes_are_two_processes(tmp_path: Path) -> None:
    cut(made(), tmp_path / "a", 3)
    other = made()
    other.pid = 200
    for path in cut(other, tmp_path / "b", 3):
        path.rename(tmp_path / "a" / path.name.replace("100-", "200-"))

    found = opspan.load(tmp_path / "a")

    assert sorted(found.processes["pid"]) == [100, 200]
    assert rows(found.ranges.group_by("pid").len().sort("pid"), "pid", "len") == [(100, 800), (200, 800)]


def test_a_segment_that_goes_while_the_folder_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = cut(made(), tmp_path / "segments", 4)
    find = reading.whole_files

    def found(some: Iterable[Path]) -> list[list[Path]]:
        files = find(some)
        paths[0].unlink()
        return files

    monkeypatch.setattr(reading, "whole_files", found)
    assert 500 < opspan.load(tmp_path / "segments").ranges.height < 800
