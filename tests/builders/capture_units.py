"""A decoder of capture files for tests: slow, small, and independent of the reader, so that it can judge it too.

Written from docs/formats/capture.md. It forgives nothing: what a healthy writer cannot have written is an error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = 4096
UNIT, HALF = 64, 32
OPEN, CLOSED, FULL = range(3)
RANGE, ASYNC, MARK, END, ATTRIBUTE, BLOB, IDS, RELATION, NAME, COUNTER, SCHEMA, STATE, FRAME, MEMORY = range(1, 15)
SHORT, MODEL, LIKE, BLOCK = range(15, 19)
HALVES = (SHORT, LIKE, BLOCK)
TORCH, USER, NVTX, ITT = range(1, 5)
INT, UINT, DOUBLE = 1, 2, 3  # the type of `value`
HAS_COLOR, HAS_FORWARD, FOREIGN_END, OWNER_BY_ID, HAS_LABEL, HAS_INPUTS = 4, 8, 16, 32, 64, 128
NO_OWNER = 2**64 - 1

HEADER = struct.Struct("<8s4I4q2IQ2I64s3072s")
CHUNK = struct.Struct("<2IQ2IQ16s2Q")
EVENT = struct.Struct("<BBHI")
FIELDS = {
    RANGE: ("<3qQ6I", "start_ns end_ns value id domain category forward_tid sizes color schema"),
    END: ("<qQIIQ", "time_ns id owner_tid _ owner_unit"),
    ATTRIBUTE: ("<QII5Q", "owner type count v0 v1 v2 v3 v4"),
    BLOB: ("<Q48s", "owner bytes"),
    IDS: ("<7Q", "owner i0 i1 i2 p0 p1 p2"),
    RELATION: ("<q6Q", "time_ns h0 h1 h2 t0 t1 t2"),
    NAME: ("<4I", "what whose domain _"),
    COUNTER: ("<2q2I", "time_ns value domain _"),
    SCHEMA: ("<Q4I", "schema_id domain entries payload_bytes schema_type"),
    STATE: ("<q", "time_ns"),
}
FIELDS[SHORT] = FIELDS[LIKE] = ("<q4I", "start_ns took extra id value")
FIELDS[BLOCK] = ("<3q", "time_ns bytes total")
FIELDS[MODEL] = FIELDS[RANGE]
FIELDS[MEMORY] = ("<qQqqii", "time_ns address bytes total device_type device_index")
FIELDS |= dict.fromkeys((ASYNC, MARK, FRAME), FIELDS[RANGE])


@dataclass
class Unit:
    kind: int
    source: int
    flags: int
    name: str | None
    name_id: int
    tid: int
    number: int
    fields: dict[str, Any]
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    ids: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # ITT's own id and the parent's
    blobs: list[tuple[int, bytes]] = field(default_factory=list)  # schema id, payload

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def value(self) -> int | float | None:
        what = self.flags & 3
        raw = self.fields["value"]
        if what == UINT:
            return raw % 2**64  # type: ignore[no-any-return]
        return None if not what else struct.unpack("<d", struct.pack("<q", raw))[0] if what == DOUBLE else raw


@dataclass
class Capture:
    path: Path
    pid: int
    parent_pid: int
    state: int
    producer: int
    lost: int
    forked: bool
    clock: tuple[int, int, int, int]  # monotonic and UTC at open, at close
    host: str
    arguments: list[str]
    texts: dict[int, str]
    threads: dict[int, list[Unit]]
    thread_names: dict[int, str]

    def units(self, *kinds: int) -> list[Unit]:
        return [unit for units in self.threads.values() for unit in units if not kinds or unit.kind in kinds]

    def text(self, number: int) -> str | None:
        return self.texts[number] if number else None

    def ended(self, unit: Unit) -> int | None:
        """The end of a range, wherever it is written."""
        if unit.end_ns:
            return int(unit.end_ns)
        for end in self.units(END):
            if end.flags & FOREIGN_END:
                if unit.kind == RANGE and (end.owner_tid, end.owner_unit) == (unit.tid, unit.number):
                    return int(end.time_ns)
            elif unit.kind in (ASYNC, FRAME) and end.id == unit.id and end.time_ns >= unit.start_ns:
                return int(end.time_ns)
        return None

    def depths(self, tid: int) -> list[tuple[int, str | None]]:
        """(depth, name) of a thread's nested ranges in the order in which they began."""
        open_until: list[float] = []
        found = []
        for unit in (unit for unit in self.threads[tid] if unit.kind == RANGE):
            while open_until and open_until[-1] <= unit.start_ns:
                open_until.pop()
            found.append((len(open_until), unit.name))
            open_until.append(self.ended(unit) or float("inf"))
        return found


def read(path: Path) -> Capture:
    data = path.read_bytes()
    (magic, version, header_bytes, pid, parent, mono, utc, mono2, utc2, state, producer, lost, forked, reserved,
     host, command) = HEADER.unpack_from(data)  # fmt: skip
    require(magic == b"OPSPANCP" and version == 5 and header_bytes == PAGE and reserved == 0, "header")
    texts: dict[int, str] = {}
    chunks = list(split(data))
    for kind, _, _, _, content in chunks:
        if kind == 2:
            read_texts(content, texts)
    threads: dict[int, list[Unit]] = {}
    names = {}
    models: dict[int, dict[int, Any]] = {}
    for kind, tid, name, first, content in chunks:
        if kind == 3:
            threads.setdefault(tid, []).extend(read_units(content, tid, first, texts, models.setdefault(tid, {})))
            names[tid] = name
    for units in threads.values():
        attach(units, texts)
    return Capture(
        path, pid, parent, state, producer, lost, bool(forked), (mono, utc, mono2, utc2),
        host.split(b"\0")[0].decode(), command.rstrip(b"\0").decode().split("\0"), texts, threads, names,
    )  # fmt: skip


def read_folder(folder: Path) -> list[Capture]:
    return [read(path) for path in sorted(folder.glob("*.opspan"))]


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"not what a healthy writer writes: {what}")


def split(data: bytes) -> Any:
    """(kind, tid, thread name, first unit, content) of every chunk."""
    at = PAGE
    while at < len(data):
        magic, kind, size, tid, _, first, name, _, _ = CHUNK.unpack_from(data, at)
        if magic == 0:  # a chunk that was being made
            require(not any(data[at + 4 :]), "bytes after the last chunk")
            return
        require(magic == 0x4B4E4843 and kind in (2, 3) and size % PAGE == 0 and size > 0, f"chunk at {at}")
        require(at + size <= len(data), f"chunk at {at} ends after the file")
        yield kind, tid, name.split(b"\0")[0].decode(), first, data[at + UNIT : at + size]
        at += size


def read_texts(content: bytes, texts: dict[int, str]) -> None:
    at = 0
    while at + 8 <= len(content):
        length, number = struct.unpack_from("<2I", content, at)
        if length == 0:
            require(not any(content[at:]), "text after the last one")
            return
        require(number == len(texts) + 1, f"text {number} after {len(texts)}")
        texts[number] = content[at + 8 : at + 7 + length].decode(errors="surrogateescape")
        at += (8 + length - 1 + 7) // 8 * 8


def read_units(content: bytes, tid: int, first: int, texts: dict[int, str], models: dict[int, Any]) -> Any:
    at = 0
    while at < len(content):
        kind, source, flags, name = EVENT.unpack_from(content, at)
        if kind == 0 and at % UNIT and any(content[at:]):  # beside a short unit, before a whole one
            require(not any(content[at : at + HALF]), "half a line that is neither empty nor a unit")
            at += HALF
            continue
        if kind == 0:
            require(not any(content[at:]), "a unit after the last one")
            return
        require(kind in HALVES or not at % UNIT, "a whole unit in two lines")
        layout, names = FIELDS[kind]
        values = dict(zip(names.split(), struct.unpack_from(layout, content, at + 8), strict=True))
        number = first + at // HALF
        word = int.from_bytes(content[at : at + 8], "little")
        at += HALF if kind in HALVES else UNIT
        if kind == SHORT:
            kind, source, flags, values = of_short(source, flags, values)
        elif kind == LIKE:
            model = models[name]  # told before, by this thread, in this file
            require(not source & ~3 and not model[1] & 3, "what two places say")
            kind, source, flags, name, values = of_like(*model, source, flags, values)
        elif kind == BLOCK:
            kind, source, flags, name = MEMORY, TORCH, word >> 8 & 255, 0
            values |= {"address": word >> 16, "device_type": 0, "device_index": -1}
        if kind == MODEL:
            own = ("start_ns", "end_ns", "value", "id")
            require(not any(values[one] for one in own), "what is a range's own in what several have in common")
            models[number] = (source, flags, name, values)
            continue
        text = None if kind == BLOB or name == 0 else texts[name]
        yield Unit(kind, source, flags, text, name, tid, number, values)


def of_short(what: int, high: int, of: dict[str, int]) -> tuple[int, int, int, dict[str, int]]:
    """Kind, source, flags and fields of the range that half a line stands for."""
    flags = sum(flag for bit, flag in ((16, INT), (32, HAS_FORWARD), (64, 256), (128, 512)) if what & bit)
    values = (of["start_ns"], ended(high, of), of["value"], of["id"], 0, what & 15, of["extra"], 0, 0, 0)
    return RANGE, TORCH, flags, dict(zip(FIELDS[RANGE][1].split(), values, strict=True))


def of_like(
    source: int, flags: int, name: int, common: dict[str, int], what: int, high: int, of: dict[str, int]
) -> tuple[int, int, int, int, dict[str, int]]:
    """The same of a range that has much in common with others."""
    own = {"start_ns": of["start_ns"], "end_ns": ended(high, of), "value": of["value"], "id": of["id"]}
    place = "color" if source == ITT and flags & HAS_LABEL else "forward_tid"
    require(common[place] == 0, "what is a range's own in what several have in common")
    return RANGE, source, flags | what, name, common | own | {place: of["extra"]}


def ended(high: int, of: dict[str, int]) -> int:
    return of["start_ns"] + (high << 32 | of["took"]) - 1 if of["took"] else 0


def attach(units: list[Unit], texts: dict[int, str]) -> None:
    """Gives attributes, ids and blobs to the units that they are about."""
    by_number = {unit.number: unit for unit in units}
    require(len(by_number) == len(units), "unit numbers repeat")
    unfinished: dict[int, bytes] = {}
    for unit in units:
        if unit.kind == ATTRIBUTE and unit.owner != NO_OWNER:
            by_number[unit.owner].attributes.setdefault(unit.name or "", []).extend(values_of(unit, texts))
        elif unit.kind == IDS and unit.owner != NO_OWNER:
            by_number[unit.owner].ids = id_of(unit, "i"), id_of(unit, "p")
        elif unit.kind == BLOB:
            whole = unfinished.pop(unit.owner, b"") + unit.bytes[: unit.flags]
            if unit.flags == 48:
                unfinished[unit.owner] = whole
            else:
                by_number[unit.owner].blobs.append((unit.name_id, whole))
    require(not unfinished, "a payload without its last part")


def id_of(unit: Unit, letter: str) -> tuple[int, ...]:
    return tuple(unit.fields[f"{letter}{i}"] for i in range(3))


def values_of(unit: Unit, texts: dict[int, str]) -> list[Any]:
    raw = struct.pack("<5Q", *(unit.fields[f"v{i}"] for i in range(5)))
    if unit.type == 4:
        return [texts[unit.v0]]
    if unit.type == 5:
        return list(raw[: unit.count])
    return list(struct.unpack(f"<{unit.count}{' qQd'[unit.type]}", raw[: 8 * unit.count]))
