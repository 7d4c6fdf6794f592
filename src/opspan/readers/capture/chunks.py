"""Reads the header, texts and units (64-byte records) of a capture file. Units are read in pieces of at most
PIECE_BYTES. To save memory, the ranges of all pieces are never copied into one array.

Damaged parts are left out and become issues; only a file without a usable header is an error. The segments of a rolling
recording are read as one file, because the numbers of units and texts go on from one segment to the next.
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
from opspan.readers.capture import layout
from opspan.readers.capture.bytes import CaptureBytes, join_headers, name_of, read_header
from opspan.readers.capture.file import Bools, CaptureFile, Ints, Log, Piece, Ranges, Texts, Units, find
from opspan.readers.capture.halves import HALF_BYTES, Models, widen_into
from opspan.tables import Issues
from opspan.tables.window import FOREVER, Steps, Stretch, Window, numbers_of, of_steps

PAGE = 4096
CHUNK_MAGIC = 0x4B4E4843  # "CHNK"
UNITS, STRINGS, HALVES = 1, 2, 3
# Kind of chunk -> how many bytes share one unit number. In a chunk of half units, every 32 bytes have their own number.
SIZES = {UNITS: layout.UNIT_BYTES, STRINGS: layout.UNIT_BYTES, HALVES: HALF_BYTES}
CHUNK = struct.Struct("<2IQ2IQ16s16x")

# Limit on the bytes of memory for units that are read at once. A usual chunk needs less, and all ranges together need
# much more.
PIECE_BYTES = 16 << 20
# Limit on the bytes of a block in the file. In memory, the block may take twice as many bytes.
BLOCK_BYTES = PIECE_BYTES * HALF_BYTES // layout.UNIT_BYTES
MOST_UNITS = 1 << layout.NUMBER_BITS  # limit on the units of a log, because a unit's number has NUMBER_BITS bits
BYTES_A_RANGE = 100  # upper bound for the memory of one row of the table ranges


@dataclass(frozen=True)
class Chunk:
    segment: CaptureBytes
    goes_on: bool  # true from the second segment on; the first units may be in a deleted segment
    kind: int
    at: int  # offset of the chunk's contents in the file
    bytes: int  # size of the contents, without bytes past the end of the file
    tid: int
    first_unit: int
    end_unit: int
    thread_name: str


@dataclass(frozen=True)
class UnitBlock:
    """Units of one log (the units of a thread) that are consecutive in the file."""

    segment: CaptureBytes
    log: int
    first_unit: int
    at: int
    bytes: int
    is_halves: bool

    @property
    def room(self) -> int:
        """Upper bound for the bytes of the block's units in memory."""
        return self.bytes * layout.UNIT_BYTES // HALF_BYTES if self.is_halves else self.bytes


def read_file(paths: Sequence[Path], issues: Issues, stretch: Stretch | None = None) -> CaptureFile:
    """Reads the file, or its segments in order. With a stretch (a time interval), leaves out ranges that are certainly
    outside of it."""
    with contextlib.ExitStack() as opened:
        segments = [opened.enter_context(segment) for segment in _segments(paths)]
        header = join_headers([segment.header() for segment in segments])
        chunks = [chunk for segment in segments for chunk in _chunks(segment, issues)]
        written = Meter(TEXTS, sum(segment.bytes for segment in segments), issues)
        texts = _texts(chunks, written, issues)
        logs, blocks = _logs(chunks, issues)
        ranges, units, left_out = _units(blocks, stretch, issues)
        if any(segment.missing for segment in segments):
            issues.add("truncated_file", detail="it was cut while it was read")
    return CaptureFile(paths[0], written, header, texts, logs, ranges, units, left_out)


def _segments(paths: Sequence[Path]) -> Iterator[CaptureBytes]:
    for path in paths:
        try:
            yield CaptureBytes(path)
        except NotReadable:
            # A segment may be missing, because a recording that still runs deletes its oldest segment.
            if path is paths[-1] or path.exists():
                raise


def stretch_of(paths: Sequence[Path], window: Window) -> Stretch:
    """Converts the window to a time interval on the captures' clock. All captures must be of one run."""
    opened, frames = [], [pl.DataFrame(schema={"step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})]
    for path in paths:
        try:
            with boundary(path):
                opened.append(read_header(path).open_monotonic_ns)
                if window.steps is not None:
                    with CaptureBytes(path) as segment:
                        frames.append(_steps(segment, window.steps))
        except ReadError:  # ignored here, because read_file will raise the same error
            continue
    if window.between is not None:
        begin = min(opened, default=0)
        return Stretch(begin + window.between[0], begin + window.between[1])
    steps = pl.concat(frames)
    return of_steps(window.steps or (0, 0), steps["step"], steps["start_ns"], steps["end_ns"])


def _steps(segment: CaptureBytes, wanted: Steps) -> pl.DataFrame:
    """Returns one row for each wanted step: its number, begin and end. Keeps only the units of these steps."""
    issues = Issues()
    chunks = list(_chunks(segment, issues))
    texts = _texts(chunks, Meter(TEXTS, segment.bytes, issues), issues)
    _, blocks = _logs(chunks, issues)
    numbers = numbers_of(texts.column, wanted)
    is_step = numbers.is_not_null().to_numpy()
    frames = [pl.DataFrame(schema={"row": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64})]
    for units, _ in _read(blocks, issues):
        some = units.of(layout.RANGE)
        rows = texts.rows(some.u32(1))
        some, rows = some.where(is_step[rows]), rows[is_step[rows]]
        frames.append(pl.DataFrame({"row": rows, "start_ns": some.i64(1), "end_ns": some.i64(2)}))
    steps = pl.concat(frames)
    return steps.select(
        numbers.gather(steps["row"]).alias("step"), "start_ns", pl.when(pl.col("end_ns") != 0).then("end_ns")
    )


def _chunks(segment: CaptureBytes, issues: Issues) -> Iterator[Chunk]:
    """Yields the chunks in the order in which the program made them."""
    at, damaged, goes_on = PAGE, 0, segment.header().segment > 1
    while at + CHUNK.size <= segment.size:
        magic, kind, size, tid, _, first_unit, name = CHUNK.unpack(
            segment.read(at, CHUNK.size).ljust(CHUNK.size, b"\0")
        )
        units = (size - CHUNK.size) // SIZES.get(kind, layout.UNIT_BYTES)
        sound = kind in SIZES and size >= PAGE and size % PAGE == 0 and first_unit + units <= MOST_UNITS
        if magic != CHUNK_MAGIC or not sound:
            # The chunk was not finished, or is damaged. The next chunk begins at some later page. A page inside a chunk
            # cannot look like the beginning of a chunk, because "CHNK" is not the first word of any unit.
            damaged += magic != 0
            at += PAGE
            continue
        if at + size > segment.size:
            issues.add("truncated_file", detail=f"{at + size - segment.size:,} bytes")
        begin, end = at + CHUNK.size, min(at + size, segment.size)
        yield Chunk(segment, goes_on, kind, begin, end - begin, tid, first_unit, first_unit + units, name_of(name))
        at += size
    if at < segment.size or segment.size < PAGE:
        issues.add("truncated_file", detail="it ends within the head of a chunk")
    issues.add("damaged_file", damaged, "pages that should begin a chunk")


def _texts(chunks: Iterable[Chunk], written: Meter, issues: Issues) -> Texts:
    columns = [pl.Series("text", [None], dtype=pl.String)]
    ids = [np.zeros(1, dtype=np.int64)]
    damaged = replaced = 0
    last: dict[CaptureBytes, int] = {}  # segment -> id of its last text; a later segment may have lower ids
    in_order = True
    for chunk in chunks:
        if chunk.kind != STRINGS:
            continue
        raw = chunk.segment.read(chunk.at, chunk.bytes)
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
        numbers = np.concatenate([[last.get(chunk.segment, 0)], text_ids])
        in_order &= bool((np.diff(numbers) > 0).all())
        last[chunk.segment] = int(numbers[-1])
    issues.add("damaged_file", damaged, "texts")
    issues.add("undecoded_text", replaced)
    column, known = pl.concat(columns), np.concatenate(ids)
    if not in_order:
        issues.add("damaged_file", detail="texts out of order")
    if not (np.diff(known) > 0).all():
        known, first = np.unique(known, return_index=True)
        column = column.gather(first)
    # Without rechunk(), each row that is looked up would copy its text.
    return Texts(column.rechunk(), known[1:], written)


def _entries(content: bytes) -> tuple[Ints, Ints, Ints, bool]:
    """Returns the offsets, sizes and ids of the texts in a chunk, and whether the chunk is undamaged."""
    words = np.frombuffer(content, dtype=np.uint32, count=len(content) // 8 * 2).reshape(-1, 2).astype(np.int64)
    sizes, ids = words[:, 0] - 1, words[:, 1]
    # Each entry begins with a head of two words. The next line treats every pair of words as a head, and computes where
    # the entry of this head would end. Most pairs are not heads, but this is still faster than unpacking each head in
    # Python. The loop below goes from head to head.
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


def _logs(chunks: Iterable[Chunk], issues: Issues) -> tuple[tuple[Log, ...], list[UnitBlock]]:
    logs: list[Log] = []
    current: dict[int, int] = {}  # thread -> the thread's latest log
    ends: dict[int, int] = {}  # thread -> number of the next unit in the latest log
    damaged = 0
    blocks: list[UnitBlock] = []
    for chunk in chunks:
        if chunk.kind == STRINGS:
            continue
        # If unit numbers start again, a later thread has the same id, or the thread has started a new log.
        if chunk.tid not in current or chunk.first_unit < ends[chunk.tid]:
            damaged += chunk.first_unit != 0 and not chunk.goes_on
            current[chunk.tid] = len(logs)
            logs.append(Log(chunk.tid, chunk.thread_name))
        ends[chunk.tid] = chunk.end_unit
        # A damaged chunk may claim to be as large as the file, so chunks are read in blocks.
        for begin in range(0, chunk.bytes // layout.UNIT_BYTES * layout.UNIT_BYTES, BLOCK_BYTES):
            size = min(BLOCK_BYTES, chunk.bytes // layout.UNIT_BYTES * layout.UNIT_BYTES - begin)
            first_unit = chunk.first_unit + begin // SIZES[chunk.kind]
            log, is_halves = current[chunk.tid], chunk.kind == HALVES
            blocks.append(UnitBlock(chunk.segment, log, first_unit, chunk.at + begin, size, is_halves))
    issues.add("damaged_file", damaged, "chunks out of order")
    return tuple(logs), sorted(blocks, key=lambda block: (block.log, block.first_unit))


def _read(blocks: list[UnitBlock], issues: Issues) -> Iterator[tuple[Units, mmap.mmap]]:
    """Yields the units of several blocks at a time, and the buffer that holds these units. Each buffer is new, so that
    its memory can be freed separately. Units of kind 0 are empty."""
    begin, models = 0, Models()
    while begin < len(blocks):
        end, size = begin + 1, blocks[begin].room
        while end < len(blocks) and size + blocks[end].room <= PIECE_BYTES:
            size += blocks[end].room
            end += 1
        # All memory of a freed mmap goes back to the system. Memory of a freed numpy array may stay in the process if
        # other memory was allocated after it.
        buffer = mmap.mmap(-1, max(size, 1))
        words = np.frombuffer(buffer, dtype=np.int64, count=size // 8).reshape(-1, 8)
        count, keys = 0, [np.empty(0, dtype=np.int64)]
        for block in blocks[begin:end]:
            models.begin(block.log)
            numbers = _units_of(block, words[count:], models)
            count += len(numbers)
            keys.append((block.log << layout.NUMBER_BITS | block.first_unit) + numbers)
        progress.add(count)
        yield Units(words[:count], np.concatenate(keys)), buffer
        begin = end
    issues.add("damaged_file", models.missing, "ranges like others that are not there")


def _units_of(block: UnitBlock, into: Ints, models: Models) -> Ints:
    """Reads the block's units into the array `into`. Returns the unit numbers, counted from the block's first unit."""
    if block.is_halves:
        raw = bytearray(block.bytes)
        block.segment.read_into(memoryview(raw), block.at)
        return widen_into(
            np.frombuffer(raw, dtype=np.int64).reshape(-1, HALF_BYTES // 8), into, block.first_unit, models
        )
    count = block.bytes // layout.UNIT_BYTES
    block.segment.read_into(memoryview(into[:count].view(np.uint8).data).cast("B"), block.at)
    return np.arange(count)


def _units(blocks: list[UnitBlock], stretch: Stretch | None, issues: Issues) -> tuple[Ranges, Units, int]:
    """Returns the ranges, all other units, and the number of ranges that were left out because they are outside of
    `stretch`."""
    pieces: list[Piece] = []
    others: list[Units] = []
    left_out = 0
    room = None if stretch is None else available_bytes()
    for units, buffer in _read(blocks, issues):
        is_range = units.kind_is(*layout.RANGES)
        is_other = ~is_range & ~units.kind_is(0, layout.MODEL)
        if stretch is not None:
            overlaps = is_range & _may_overlap(units, stretch)
            left_out += int(np.count_nonzero(is_range & ~overlaps))
            is_range = overlaps
        rest = units.where(is_other) if is_other.any() else None
        if is_range.any():
            pieces.append(Piece.of(*_compact(units, is_range, buffer)))
            if room is not None and BYTES_A_RANGE * (kept := sum(len(piece.words) for piece in pieces)) > room:
                path = blocks[0].segment.path
                raise TooLarge(
                    f"{path}: {kept:,} ranges and more overlap the part that was asked for, which does not fit "
                    f"into {gigabytes(room)} of memory: read a smaller part, or say with {LIMIT}=64G what may be used"
                )
        if rest is not None:
            others.append(rest if stretch is None else _without_orphans(rest, Ranges(pieces), others))
    return Ranges(pieces), Units.joined(others), left_out


def _compact(units: Units, wanted: Bools, buffer: mmap.mmap) -> tuple[Ints, Ints]:
    """Moves the wanted units to the front of the buffer, and frees the rest of the buffer. Returns the words and keys
    of the wanted units."""
    if wanted.all():
        return units.words, units.keys
    count = int(np.count_nonzero(wanted))
    units.words[:count] = units.words[wanted]
    unused = -(-count * layout.UNIT_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
    if unused < len(buffer):
        buffer.madvise(mmap.MADV_DONTNEED, unused)
    return units.words[:count], units.keys[wanted]


def _may_overlap(units: Units, stretch: Stretch) -> Bools:
    """Returns which ranges may overlap the stretch. A range without an end in its unit counts as endless, because its
    end may be in another unit."""
    starts, ends = units.i64(1), units.i64(2)
    known = np.where(units.kinds == layout.MARK, starts, np.where(ends == 0, FOREVER, ends))
    return stretch.overlaps(starts, known)


def _without_orphans(units: Units, ranges: Ranges, others: list[Units]) -> Units:
    """Drops units that belong to ranges which are not in `ranges`. Keeps schemas, payloads of ends, and units that
    belong to no range."""
    kinds, owners = units.kinds, units.owners
    owned = np.isin(kinds, (layout.ATTRIBUTE, layout.IDS, layout.BLOB)) & (units.i64(1) != layout.NO_OWNER)
    owned &= ~((kinds == layout.ATTRIBUTE) & (units.u16(1) & layout.OWNER_BY_ID != 0))
    apart = np.sort(
        np.concatenate([some.keys[np.isin(some.kinds, (layout.END, layout.SCHEMA))] for some in (*others, units)])
    )
    return units.where(~owned | (ranges.rows(owners) >= 0) | (find(apart, owners) >= 0))
