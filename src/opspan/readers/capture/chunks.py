"""Reads the bytes of a capture file in pieces: header, texts and units. Units of ranges are kept in these pieces.

Whatever is damaged is left out and becomes an issue; only a file without a usable header is an error. The segments of a
rolling recording are read as the one file that they are pieces of: its threads count their units on and on, and its
texts are numbered on and on.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from opspan.errors import NotReadable, ReadError, TooLarge
from opspan.formats import progress
from opspan.formats.boundary import boundary
from opspan.formats.budget import LIMIT, TEXTS, Meter, available_bytes, gigabytes
from opspan.readers.capture.file import (
    ATTRIBUTE,
    BLOB,
    END,
    IDS,
    MARK,
    MODEL,
    NO_OWNER,
    NUMBER_BITS,
    OWNER_BY_ID,
    RANGE,
    RANGES,
    SCHEMA,
    UNIT_BYTES,
    Bools,
    CaptureFile,
    Ints,
    Log,
    Piece,
    Ranges,
    Texts,
    Units,
    find,
)
from opspan.readers.capture.halves import HALF_BYTES, Models, widened
from opspan.readers.capture.source import Source, joined, name_of, read_header
from opspan.tables import Issues
from opspan.tables.window import FOREVER, Steps, Stretch, Window, numbers_of, of_steps

PAGE = 4096
CHUNK_MAGIC = 0x4B4E4843  # "CHNK"
UNITS, STRINGS, HALVES = 1, 2, 3
SIZES = {UNITS: UNIT_BYTES, STRINGS: UNIT_BYTES, HALVES: HALF_BYTES}  # of what is numbered
CHUNK = struct.Struct("<2IQ2IQ16s16x")

# How much is read at a time: more than a chunk, and little compared with the memory that all ranges take.
PIECE_BYTES = 16 << 20
PART_BYTES = PIECE_BYTES * HALF_BYTES // UNIT_BYTES  # of the file at a time: its units may be half as large there
MOST_UNITS = 1 << NUMBER_BITS  # in a log, because their numbers have this many bits
BYTES_A_RANGE = 100  # memory that a table takes at its peak, for each range


@dataclass(frozen=True)
class Chunk:
    source: Source
    goes_on: bool  # in a later segment: units of its thread before it may be gone
    kind: int
    at: int  # where its contents begin in the file
    bytes: int  # size of the contents, as far as the file goes
    tid: int
    first_unit: int
    end_unit: int
    thread_name: str


@dataclass(frozen=True)
class Part:
    """Units of a log that follow each other in the file."""

    source: Source
    log: int
    first_unit: int
    at: int
    bytes: int
    is_halves: bool

    @property
    def room(self) -> int:
        """Bytes that its units take at most."""
        return self.bytes * UNIT_BYTES // HALF_BYTES if self.is_halves else self.bytes


def read_file(paths: Sequence[Path], issues: Issues, stretch: Stretch | None = None) -> CaptureFile:
    """The file, or its segments in their order; with a stretch, without the ranges that are certainly outside of it."""
    with contextlib.ExitStack() as opened:
        sources = [opened.enter_context(source) for source in _sources(paths)]
        header = joined([source.header() for source in sources])
        chunks = [chunk for source in sources for chunk in _chunks(source, issues)]
        written = Meter(TEXTS, sum(source.bytes for source in sources), issues)
        texts = _texts(chunks, written, issues)
        logs, parts = _logs(chunks, issues)
        ranges, units, left_out = _units(parts, stretch, issues)
        if any(source.missing for source in sources):
            issues.add("truncated_file", detail="it was cut while it was read")
    return CaptureFile(paths[0], written, header, texts, logs, ranges, units, left_out)


def _sources(paths: Sequence[Path]) -> Iterator[Source]:
    for path in paths:
        try:
            yield Source(path)
        except NotReadable:
            # The oldest segment of a recording that goes on.
            if path is paths[-1] or path.exists():
                raise


def stretch_of(paths: Sequence[Path], window: Window) -> Stretch:
    """The window on the clock of these captures, which are of one run."""
    opened, found = [], [pl.DataFrame(schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})]
    for path in paths:
        try:
            with boundary(path):
                opened.append(read_header(path).open_monotonic_ns)
                if window.steps is not None:
                    with Source(path) as source:
                        found.append(_steps(source, window.steps))
        except ReadError:  # the error is raised when this file is read
            continue
    if window.between is not None:
        begin = min(opened, default=0)
        return Stretch(begin + window.between[0], begin + window.between[1])
    steps = pl.concat(found)
    return of_steps(window.steps or (0, 0), steps["step"], steps["start_ns"], steps["end_ns"])


def _steps(source: Source, wanted: Steps) -> pl.DataFrame:
    """Number, begin and end of the file's steps. Everything else in it is read, but not kept."""
    issues = Issues()
    chunks = list(_chunks(source, issues))
    texts = _texts(chunks, Meter(TEXTS, source.bytes, issues), issues)
    _, parts = _logs(chunks, issues)
    numbers = numbers_of(texts.column, wanted)
    is_step = numbers.is_not_null().to_numpy()
    found = [pl.DataFrame(schema={"row": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})]
    for units, _ in _read(parts, issues):
        some = units.of(RANGE)
        rows = texts.rows(some.u32(1))
        some, rows = some.where(is_step[rows]), rows[is_step[rows]]
        found.append(pl.DataFrame({"row": rows, "start_ns": some.i64(1), "end_ns": some.i64(2)}))
    steps = pl.concat(found)
    return steps.select(
        numbers.gather(steps["row"]).alias("step"), "start_ns", pl.when(pl.col("end_ns") != 0).then("end_ns")
    )


def _chunks(source: Source, issues: Issues) -> Iterator[Chunk]:
    """In the order in which they were made."""
    at, damaged, goes_on = PAGE, 0, source.header().segment > 1
    while at + CHUNK.size <= source.size:
        magic, kind, size, tid, _, first_unit, name = CHUNK.unpack(source.read(at, CHUNK.size).ljust(CHUNK.size, b"\0"))
        units = (size - CHUNK.size) // SIZES.get(kind, UNIT_BYTES)
        sound = kind in SIZES and size >= PAGE and size % PAGE == 0 and first_unit + units <= MOST_UNITS
        if magic != CHUNK_MAGIC or not sound:
            # A chunk that was just being made, or damage. The next chunk begins at some later page. No page inside a
            # chunk can look like the beginning of one, because "CHNK" is not the first word of any unit.
            damaged += magic != 0
            at += PAGE
            continue
        if at + size > source.size:
            issues.add("truncated_file", detail=f"{at + size - source.size:,} bytes")
        begin, end = at + CHUNK.size, min(at + size, source.size)
        yield Chunk(source, goes_on, kind, begin, end - begin, tid, first_unit, first_unit + units, name_of(name))
        at += size
    if at < source.size or source.size < PAGE:
        issues.add("truncated_file", detail="it ends within the head of a chunk")
    issues.add("damaged_file", damaged, "pages that should begin a chunk")


def _texts(chunks: Iterable[Chunk], written: Meter, issues: Issues) -> Texts:
    columns = [pl.Series("text", [None], dtype=pl.String)]
    ids = [np.zeros(1, dtype=np.int64)]
    damaged = replaced = 0
    last: dict[Source, int] = {}  # texts of two segments may have been numbered in turns
    in_order = True
    for chunk in chunks:
        if chunk.kind != STRINGS:
            continue
        raw = chunk.source.read(chunk.at, chunk.bytes)
        begins, sizes, text_ids, sound = _entries(raw)
        damaged += not sound
        spans = [slice(begin, begin + size) for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
        try:
            texts = [raw[span].decode() for span in spans]
        except UnicodeDecodeError:
            texts = [raw[span].decode("utf-8", "replace") for span in spans]
            replaced += sum(text.encode() != raw[span] for text, span in zip(texts, spans, strict=True))
        columns.append(pl.Series("text", texts, dtype=pl.String))
        ids.append(text_ids)
        numbers = np.concatenate([[last.get(chunk.source, 0)], text_ids])
        in_order &= bool((np.diff(numbers) > 0).all())
        last[chunk.source] = int(numbers[-1])
    issues.add("damaged_file", damaged, "texts")
    issues.add("undecoded_text", replaced)
    column, known = pl.concat(columns), np.concatenate(ids)
    if not in_order:
        issues.add("damaged_file", detail="texts out of order")
    if not (np.diff(known) > 0).all():
        known, first = np.unique(known, return_index=True)
        column = column.gather(first)
    # In several chunks a row that is looked up would be a copy of its text.
    return Texts(column.rechunk(), known[1:], written)


def _entries(content: bytes) -> tuple[Ints, Ints, Ints, bool]:
    """Where the texts of a chunk begin, their sizes and ids, and whether the chunk is as it should be."""
    words = np.frombuffer(content, dtype=np.uint32, count=len(content) // 8 * 2).reshape(-1, 2).astype(np.int64)
    sizes, ids = words[:, 0] - 1, words[:, 1]
    # For each pair of words, where the next entry would begin if it were the head of one: following this list costs
    # little compared with unpacking.
    following = (np.arange(len(words)) + 1 + (sizes + 7) // 8).tolist()
    ends, heads, at = (sizes < 0).tolist(), [], 0
    while at < len(following) and not ends[at]:
        heads.append(at)
        at = following[at]
    sound = at <= len(following)
    places = np.array(heads[: len(heads) - (not sound)], dtype=np.int64)
    named = ids[places] > 0
    places = places[named]
    return (places + 1) * 8, sizes[places], ids[places], sound and bool(named.all())


def _logs(chunks: Iterable[Chunk], issues: Issues) -> tuple[tuple[Log, ...], list[Part]]:
    logs: list[Log] = []
    current: dict[int, int] = {}  # thread -> its log, as far as the file goes
    ends: dict[int, int] = {}  # thread -> number of the unit that comes next in that log
    damaged = 0
    parts: list[Part] = []
    for chunk in chunks:
        if chunk.kind == STRINGS:
            continue
        # If unit numbers start again, it is another thread with the same id, or the same thread has begun again.
        if chunk.tid not in current or chunk.first_unit < ends[chunk.tid]:
            damaged += chunk.first_unit != 0 and not chunk.goes_on
            current[chunk.tid] = len(logs)
            logs.append(Log(chunk.tid, chunk.thread_name))
        ends[chunk.tid] = chunk.end_unit
        # A damaged chunk may say that it is as large as the file, so it is read in parts.
        for begin in range(0, chunk.bytes // UNIT_BYTES * UNIT_BYTES, PART_BYTES):
            size = min(PART_BYTES, chunk.bytes // UNIT_BYTES * UNIT_BYTES - begin)
            first_unit = chunk.first_unit + begin // SIZES[chunk.kind]
            is_halves = chunk.kind == HALVES
            parts.append(Part(chunk.source, current[chunk.tid], first_unit, chunk.at + begin, size, is_halves))
    issues.add("damaged_file", damaged, "chunks out of order")
    return tuple(logs), sorted(parts, key=lambda part: (part.log, part.first_unit))


def _read(parts: list[Part], issues: Issues) -> Iterator[tuple[Units, mmap.mmap]]:
    """The units of the parts, a few parts at a time, each time in new memory. Units of kind 0 were not written."""
    begin, models = 0, Models()
    while begin < len(parts):
        end, size = begin + 1, parts[begin].room
        while end < len(parts) and size + parts[end].room <= PIECE_BYTES:
            size += parts[end].room
            end += 1
        # Not memory of numpy's: all of this goes back to the system, whatever else was allocated in the meantime.
        buffer = mmap.mmap(-1, max(size, 1))
        words = np.frombuffer(buffer, dtype=np.int64, count=size // 8).reshape(-1, 8)
        count, keys = 0, [np.empty(0, dtype=np.int64)]
        for part in parts[begin:end]:
            models.begin(part.log)
            numbers = _units_of(part, words[count:], models)
            count += len(numbers)
            keys.append((part.log << NUMBER_BITS | part.first_unit) + numbers)
        progress.add(count)
        yield Units(words[:count], np.concatenate(keys)), buffer
        begin = end
    issues.add("damaged_file", models.missing, "ranges like others that are not there")


def _units_of(part: Part, into: Ints, models: Models) -> Ints:
    """Reads the part's units. Their numbers, from the part's first on."""
    if part.is_halves:
        raw = bytearray(part.bytes)
        part.source.read_into(memoryview(raw), part.at)
        return widened(np.frombuffer(raw, dtype=np.int64).reshape(-1, HALF_BYTES // 8), into, part.first_unit, models)
    count = part.bytes // UNIT_BYTES
    part.source.read_into(memoryview(into[:count].view(np.uint8).data).cast("B"), part.at)
    return np.arange(count)


def _units(parts: list[Part], stretch: Stretch | None, issues: Issues) -> tuple[Ranges, Units, int]:
    """The ranges, all other units, and how many ranges lie outside of the stretch."""
    pieces: list[Piece] = []
    others: list[Units] = []
    left_out = 0
    room = None if stretch is None else available_bytes()
    for units, buffer in _read(parts, issues):
        is_range = units.kind_is(*RANGES)
        is_other = ~is_range & ~units.kind_is(0, MODEL)
        if stretch is not None:
            overlaps = is_range & _may_overlap(units, stretch)
            left_out += int(np.count_nonzero(is_range & ~overlaps))
            is_range = overlaps
        rest = units.where(is_other) if is_other.any() else None
        if is_range.any():
            pieces.append(Piece.of(*_compacted(units, is_range, buffer)))
            if room is not None and BYTES_A_RANGE * (kept := sum(len(piece.words) for piece in pieces)) > room:
                path = parts[0].source.path
                raise TooLarge(
                    f"{path}: {kept:,} ranges and more overlap the part that was asked for, which does not fit "
                    f"into {gigabytes(room)} of memory: read a smaller part, or say with {LIMIT}=64G what may be used"
                )
        if rest is not None:
            others.append(rest if stretch is None else _of_kept(rest, Ranges(pieces), others))
    return Ranges(pieces), Units.joined(others), left_out


def _compacted(units: Units, wanted: Bools, buffer: mmap.mmap) -> tuple[Ints, Ints]:
    """Words and keys of the wanted units, moved to the front of the memory of all of them; the rest of it is freed."""
    if wanted.all():
        return units.words, units.keys
    count = int(np.count_nonzero(wanted))
    units.words[:count] = units.words[wanted]
    unused = -(-count * UNIT_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
    if unused < len(buffer):
        buffer.madvise(mmap.MADV_DONTNEED, unused)
    return units.words[:count], units.keys[wanted]


def _may_overlap(units: Units, stretch: Stretch) -> Bools:
    """Which ranges may overlap the stretch. A range without an end in its unit may have it in another unit."""
    starts, ends = units.i64(1), units.i64(2)
    known = np.where(units.kinds == MARK, starts, np.where(ends == 0, FOREVER, ends))
    return stretch.overlaps(starts, known)


def _of_kept(units: Units, ranges: Ranges, others: list[Units]) -> Units:
    """Drops data of ranges that were not kept. Payloads of ends and schemas stay, and data that belongs to no range."""
    kinds, owners = units.kinds, units.owners
    owned = np.isin(kinds, (ATTRIBUTE, IDS, BLOB)) & (units.i64(1) != NO_OWNER)
    owned &= ~((kinds == ATTRIBUTE) & (units.u16(1) & OWNER_BY_ID != 0))
    apart = np.sort(np.concatenate([some.keys[np.isin(some.kinds, (END, SCHEMA))] for some in (*others, units)]))
    return units.where(~owned | (ranges.rows(owners) >= 0) | (find(apart, owners) >= 0))
