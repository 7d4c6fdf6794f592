"""A capture file as arrays: header, texts, 64-byte units. docs/formats/capture.md describes the bytes.

What the units mean together is ranges.py's and tables.py's business. Whatever is damaged is left out and becomes an
issue; only a file without a usable header is an error.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from opspan.errors import NotATrace, NotReadable, TooNew, Truncated
from opspan.trace import Issues

MAGIC = b"OPSPANCP"
VERSION = 1
PAGE = 4096
UNIT_BYTES = 64
CHUNK_MAGIC = 0x4B4E4843  # "CHNK"
EVENTS, STRINGS = 1, 2
OPEN, CLOSED, FULL = range(3)  # states of a file

# Kinds of units.
RANGE, ASYNC, MARK, END, ATTRIBUTE, BLOB, IDS, RELATION, NAME, COUNTER, SCHEMA, STATE, FRAME = range(1, 14)
RANGES = (RANGE, ASYNC, MARK, FRAME)
# Sources of ranges.
TORCH, USER, NVTX, ITT = range(1, 5)
# Flags of units.
VALUE_MASK, VALUE_INT, VALUE_UINT, VALUE_DOUBLE = 3, 1, 2, 3
HAS_COLOR, HAS_FORWARD, FOREIGN_END, OWNER_BY_ID, HAS_LABEL = 4, 8, 16, 32, 64
NO_OWNER = -1  # all bits set

HEADER = struct.Struct("<8s4I4q2IQ2I64s3072sqI4x")
CHUNK = struct.Struct("<2IQ2IQ16s16x")

# The number of a unit within its thread takes the low bits of its key, the thread's log the others.
NUMBER_BITS = 40
NOWHERE = -1  # the key of no unit

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Header:
    pid: int
    parent_pid: int
    open_monotonic_ns: int
    open_utc_ns: int
    close_monotonic_ns: int  # 0: never closed
    close_utc_ns: int
    state: int  # 0 open, 1 closed, 2 the disk was full
    producer: int  # 1 record, 2 collectors
    lost: int
    forked: bool
    host: str
    arguments: tuple[str, ...]
    session: tuple[int, int]  # which recording it is a file of: when and by which process it was started


@dataclass(frozen=True)
class Chunk:
    kind: int
    bytes: int
    tid: int
    first_unit: int
    thread_name: str

    @property
    def end_unit(self) -> int:
        return self.first_unit + (self.bytes - CHUNK.size) // UNIT_BYTES


@dataclass(frozen=True)
class Log:
    """What one thread wrote. Numbers of threads come again in a long run, so one may have several logs."""

    tid: int
    thread_name: str


@dataclass(frozen=True)
class Units:
    """Units of the file, in order of thread log and number. Word k of all of them is `i64(k)`, and so on."""

    words: Ints  # one row a unit, eight columns
    keys: Ints  # ascending; says which unit of which log it is

    def __len__(self) -> int:
        return len(self.words)

    def where(self, mask: npt.NDArray[np.bool_]) -> Units:
        return Units(self.words[mask], self.keys[mask])

    def of(self, *kinds: int) -> Units:
        wanted = np.zeros(256, dtype=np.bool_)
        wanted[list(kinds)] = True
        return self.where(wanted[self.kinds])

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return self.u8(0)

    def i64(self, k: int) -> Ints:
        return np.ascontiguousarray(self.words[:, k])

    def u32(self, k: int) -> npt.NDArray[np.uint32]:
        return np.ascontiguousarray(self.words.view(np.uint32)[:, k])

    def u16(self, k: int) -> npt.NDArray[np.uint16]:
        return np.ascontiguousarray(self.words.view(np.uint16)[:, k])

    def u8(self, k: int) -> npt.NDArray[np.uint8]:
        return np.ascontiguousarray(self.words.view(np.uint8)[:, k])

    @property
    def logs(self) -> Ints:
        return self.keys >> NUMBER_BITS

    @property
    def owners(self) -> Ints:
        """Keys of the units of the same thread whose numbers are in the first word after the kind."""
        numbers = self.i64(1)
        known = (numbers >= 0) & (numbers < 1 << NUMBER_BITS)
        return np.where(known, (self.logs << NUMBER_BITS) | numbers, NOWHERE)


@dataclass(frozen=True)
class Texts:
    """The file's texts by id. Row 0 of the column is null: id 0, and every id that the file does not hold."""

    column: pl.Series
    ids: Ints  # of the rows from 1 on, ascending

    def rows(self, ids: npt.NDArray[np.uint32] | Ints) -> Ints:
        wanted = ids.astype(np.int64, copy=False)
        last = int(self.ids[-1]) if len(self.ids) else 0
        if last == len(self.ids):  # 1, 2, 3 ...: an undamaged file
            return np.where((wanted > 0) & (wanted <= last), wanted, 0)
        return find(self.ids, wanted) + 1

    def of(self, ids: npt.NDArray[np.uint32] | Ints) -> pl.Series:
        return self.column.gather(self.rows(ids))

    def categories(self, ids: npt.NDArray[np.uint32] | Ints) -> pl.Series:
        """The same, dictionary-coded, without coding texts that are not asked for."""
        rows = self.rows(ids)
        used, places = distinct(rows, len(self.column))
        return self.column.gather(used).cast(pl.Categorical).gather(places)

    def missing(self, ids: npt.NDArray[np.uint32] | Ints) -> int:
        return int(np.count_nonzero((ids != 0) & (self.rows(ids) == 0)))


@dataclass(frozen=True)
class CaptureFile:
    path: Path
    header: Header
    texts: Texts
    logs: tuple[Log, ...]
    units: Units

    @property
    def tids(self) -> Ints:
        return np.array([log.tid for log in self.logs], dtype=np.int64)


def find(sorted_keys: Ints, wanted: Ints) -> Ints:
    """Where each wanted key is among the sorted ones; -1 where it is not."""
    if not len(sorted_keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return np.where(sorted_keys[at] == wanted, at, -1)


def distinct(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """The rows that occur, of `count`, and for each entry the place of its row among them."""
    used = np.zeros(count, dtype=np.bool_)
    used[rows] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[rows]


def read_file(path: Path, issues: Issues) -> CaptureFile:
    try:
        with path.open("rb") as file:
            header = _header(path, file.read(HEADER.size))
            data = _Data(file.fileno())
            chunks = list(_chunks(data, issues))
            texts = _texts([content for chunk, content in chunks if chunk.kind == STRINGS], issues)
            logs, units = _units([(chunk, content) for chunk, content in chunks if chunk.kind == EVENTS], issues)
            if data.was_cut:
                issues.add("truncated_file", detail="it was cut while it was read")
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error}") from error
    return CaptureFile(path, header, texts, logs, units)


class _Data:
    """The bytes of the file, as many as there were at first. Read and not mapped: to touch what has been cut off
    meanwhile would kill the process."""

    def __init__(self, descriptor: int) -> None:
        self.size = os.fstat(descriptor).st_size
        self.was_cut = False
        self._descriptor = descriptor

    def read(self, begin: int, end: int) -> bytes:
        """Fewer where the file ends before, and fewer still when it was cut since."""
        wanted = min(end, self.size) - begin
        parts: list[bytes] = []
        while wanted > 0 and (part := os.pread(self._descriptor, wanted, begin)):
            parts.append(part)
            begin += len(part)
            wanted -= len(part)
        self.was_cut |= wanted > 0
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True)
class _Content:
    """What a chunk holds, not read yet."""

    data: _Data
    begin: int
    end: int

    def read(self) -> bytes:
        return self.data.read(self.begin, self.end)


def read_header(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            return _header(path, file.read(HEADER.size))
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error}") from error


def _header(path: Path, head: bytes) -> Header:
    if head[: len(MAGIC)] != MAGIC:
        found = "is empty" if not head else "does not begin as one"
        raise NotATrace(f"{path} is no capture: it {found}; expected the bytes {MAGIC.decode()}")
    if len(head) >= 12 and (version := struct.unpack_from("<I", head, 8)[0]) > VERSION:
        raise TooNew(f"{path} is a capture of version {version}; this opspan reads up to {VERSION}: update opspan")
    if len(head) < HEADER.size:
        raise Truncated(f"{path} ends within its header, after {len(head)} bytes: nothing can be read from it")
    _, _, _, pid, parent_pid, opened, opened_utc, closed, closed_utc, *others = HEADER.unpack(head)
    state, producer, lost, forked, _, host, command_line, session_ns, session_pid = others
    return Header(
        pid=pid,
        parent_pid=parent_pid,
        open_monotonic_ns=opened,
        open_utc_ns=opened_utc,
        close_monotonic_ns=closed,
        close_utc_ns=closed_utc,
        state=state,
        producer=producer,
        lost=lost,
        forked=bool(forked),
        host=_name(host),
        arguments=tuple(part.decode("utf-8", "replace") for part in command_line.rstrip(b"\0").split(b"\0")),
        # Without one, as an older writer left it, a file is one by itself.
        session=(session_ns, session_pid) if session_ns else (opened, pid),
    )


def _chunks(data: _Data, issues: Issues) -> Iterator[tuple[Chunk, _Content]]:
    """Each chunk and what it holds, in the order in which they were made."""
    at, damaged = PAGE, 0
    while at + CHUNK.size <= data.size:
        head = data.read(at, at + CHUNK.size)
        if len(head) < CHUNK.size:
            return
        magic, kind, size, tid, _, first_unit, name = CHUNK.unpack(head)
        sound = kind in (EVENTS, STRINGS) and size >= PAGE and size % PAGE == 0 and first_unit < 1 << NUMBER_BITS
        if magic != CHUNK_MAGIC or not sound:
            # A chunk that was being made, or damage. The next one begins at some later page, and no page within a
            # chunk can be taken for a beginning: "CHNK" is no unit's first word.
            damaged += magic != 0
            at += PAGE
            continue
        if at + size > data.size:
            issues.add("truncated_file", detail=f"{at + size - data.size:,} bytes")
        yield Chunk(kind, size, tid, first_unit, _name(name)), _Content(data, at + CHUNK.size, at + size)
        at += size
    if at < data.size or data.size < PAGE:
        issues.add("truncated_file", detail="it ends within the head of a chunk")
    issues.add("damaged_file", damaged, "pages that should begin a chunk")


def _name(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _texts(contents: list[_Content], issues: Issues) -> Texts:
    texts: list[str | None] = [None]
    ids = [np.zeros(1, dtype=np.int64)]
    damaged = replaced = 0
    for content in contents:
        raw = content.read()
        begins, sizes, text_ids, sound = _entries(raw)
        damaged += not sound
        spans = [slice(begin, begin + size) for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
        try:
            texts += [raw[span].decode() for span in spans]
        except UnicodeDecodeError:
            some = [raw[span].decode("utf-8", "replace") for span in spans]
            replaced += sum(text.encode() != raw[span] for text, span in zip(some, spans, strict=True))
            texts += some
        ids.append(text_ids)
    issues.add("damaged_file", damaged, "texts")
    issues.add("undecoded_text", replaced)
    column, known = pl.Series("text", texts, dtype=pl.String), np.concatenate(ids)
    if not (np.diff(known) > 0).all():
        issues.add("damaged_file", detail="texts out of order")
        known, first = np.unique(known, return_index=True)
        column = column.gather(first)
    return Texts(column, known[1:])


def _entries(content: bytes) -> tuple[Ints, Ints, Ints, bool]:
    """Where the texts of a chunk begin, their sizes and ids, and whether the chunk is as it should be."""
    words = np.frombuffer(content, dtype=np.uint32, count=len(content) // 8 * 2).reshape(-1, 2).astype(np.int64)
    sizes, ids = words[:, 0] - 1, words[:, 1]
    # From any word that were a head, the next head: a list to run along, which costs little next to unpacking.
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


def _units(chunks: list[tuple[Chunk, _Content]], issues: Issues) -> tuple[tuple[Log, ...], Units]:
    logs: list[Log] = []
    current: dict[int, int] = {}  # thread -> its log, as far as the file goes
    ends: dict[int, int] = {}  # thread -> number of the unit that comes next in that log
    damaged = 0
    parts: list[tuple[int, int, _Content]] = []
    for chunk, content in chunks:
        # Numbers that start again are another thread that was given the same number, or the same one come again.
        if chunk.tid not in current or chunk.first_unit < ends[chunk.tid]:
            damaged += chunk.first_unit != 0
            current[chunk.tid] = len(logs)
            logs.append(Log(chunk.tid, chunk.thread_name))
        ends[chunk.tid] = chunk.end_unit
        parts.append((current[chunk.tid], chunk.first_unit, content))
    issues.add("damaged_file", damaged, "chunks out of order")
    words, keys = [np.empty((0, 8), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for log, first_unit, content in sorted(parts, key=lambda part: part[:2]):
        raw = content.read()
        some = np.frombuffer(raw, dtype=np.int64, count=len(raw) // UNIT_BYTES * 8).reshape(-1, 8)
        written = np.flatnonzero(some.view(np.uint8)[:, 0])
        words.append(some[written])
        keys.append(written + (log << NUMBER_BITS | first_unit))
    return tuple(logs), Units(np.concatenate(words), np.concatenate(keys))
