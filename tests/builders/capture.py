"""Capture files by hand, byte by byte, from native/capture/format.h: what the reader is tested against.

Nothing here comes from opspan, so that a mistake in the reader is not made twice.

    capture = Capture(pid=100)
    main = capture.thread(100)
    range_ = main.torch("aten::mm", 10, 20, seq=3)
    main.attribute(range_, "args", "x = 1")
    capture.write(folder / "100-1.opspan")
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096
UNIT, HALF = 64, 32
NOTHING = (1 << 64) - 1

RANGE, ASYNC, MARK, END, ATTRIBUTE, BLOB, IDS, RELATION, NAME, COUNTER, SCHEMA, STATE, FRAME, MEMORY = range(1, 15)
SHORT, MODEL, LIKE, BLOCK = range(15, 19)
RANGES = (RANGE, ASYNC, MARK, FRAME, SHORT, LIKE)
TORCH, USER, NVTX, ITT = 1, 2, 3, 4
OP, BACKWARD, ENGINE, USERS, MODULE, STEP = 1, 2, 3, 4, 5, 6
INT, UINT, DOUBLE, TEXT, BYTES = 1, 2, 3, 4, 5
STATIC, ENUM = 1, 0x100


def value_word(value: float | None, unsigned: bool = False) -> tuple[int, bytes]:
    """(value flags, 8 bytes) of a payload or counter."""
    if value is None:
        return 0, bytes(8)
    if isinstance(value, float):
        return 3, struct.pack("<d", value)
    return (2, struct.pack("<Q", value)) if unsigned else (1, struct.pack("<q", value))


def duration(start: int, end: int) -> int | None:
    """As half a line has it, if it has room for it; 0: the range is open."""
    took = end - start + 1
    return 0 if not end else took if 0 < took < 1 << 48 and took & 0xFFFFFFFF else None


def is_small(value: int, identity: int) -> bool:
    return 0 <= value < 1 << 32 and not identity >> 32


def shortened(unit: bytes) -> bytes | None:
    """Returns the half line of a range, or None if the range needs a full line."""
    kind, source, flags, name, start, end, value, identity, *rest = struct.unpack("<BBHIqqqQ6I", unit)
    domain, category, forward, *more = rest
    took = duration(start, end)
    fits = (kind, source) == (RANGE, TORCH) and not flags & ~(1 | 8 | 256 | 512) and not (domain or any(more))
    value = value if flags & 1 else 0
    if not fits or category > 15 or took is None or not is_small(value, identity):
        return None
    what = category | 16 * (flags & 1) | 4 * (flags & 8) | (flags & 256) // 4 | (flags & 512) // 4
    return struct.pack("<BBHIqIIII", SHORT, what, took >> 32, name, start, took & 0xFFFFFFFF, forward, identity, value)


def of_memory(unit: bytes) -> bytes | None:
    """Returns the half line of an event of the host's memory, or None if it needs a full line."""
    kind, _, flags, _, time, address, size, total, device, index = struct.unpack_from("<BBHIqQqqii", unit)
    if kind != MEMORY or (device, index) != (0, -1) or address >> 48 or flags >> 8:
        return None
    return struct.pack("<Qqqq", BLOCK | flags << 8 | address << 16, time, size, total)


def parted(unit: bytes) -> tuple[bytes, bytes] | None:
    """Returns the unit that ranges can share, and the half line that only this range has."""
    kind, source, flags, name, start, end, value, identity, *rest = struct.unpack("<BBHIqqqQ6I", unit)
    took = duration(start, end)
    value = value if flags & 3 else 0
    if kind != RANGE or took is None or not is_small(value, identity):
        return None
    place = 4 if source == ITT and flags & 64 else 2
    extra, rest[place] = rest[place], 0
    model = struct.pack("<BBHIqqqQ6I", MODEL, source, flags & ~3, name, 0, 0, 0, 0, *rest)
    low = (start, took & 0xFFFFFFFF, extra, identity, value)
    return model, struct.pack("<BBHIqIIII", LIKE, flags & 3, took >> 32, 0, *low)


@dataclass
class Thread:
    capture: Capture
    tid: int
    name: str = ""
    chunk_units: int = 63  # in the first chunk, which is a page long
    units: dict[int, bytes] = field(default_factory=dict)  # by their numbers
    first: int = 0  # number of its first unit
    size: int = 0  # in what is numbered: halves of lines, or units
    models: dict[bytes, int | None] = field(default_factory=dict)  # their numbers; None: not written yet

    def put(self, kind: int, source: int, flags: int, name: int, body: bytes) -> int:
        """Write a unit; its number."""
        if len(body) > UNIT - 8:
            raise ValueError("a unit is 64 bytes")
        unit = struct.pack("<BBHI", kind, source, flags, name) + body.ljust(UNIT - 8, b"\0")
        if self.capture.halves:
            unit = shortened(unit) or of_memory(unit) or self.like(unit)
        return self.add(unit)

    def add(self, unit: bytes) -> int:
        self.size += self.size % 2 if self.capture.halves and len(unit) == UNIT else 0
        number = self.first + self.size
        self.units[number] = unit
        self.size += len(unit) // self.capture.numbered
        return number

    def like(self, unit: bytes) -> bytes:
        """The second of its kind writes what they have in common, and takes half a line, as do those after it."""
        parts = parted(unit)
        if parts is None:
            return unit
        model, own = parts
        if model not in self.models:
            self.models[model] = None
            return unit
        if self.models[model] is None:
            self.models[model] = self.add(model)
        return own[:4] + struct.pack("<I", self.models[model] & 0xFFFFFFFF) + own[8:]

    def bytes(self) -> bytes:
        """All units, whole lines."""
        raw = bytearray(-(-self.size * self.capture.numbered // UNIT) * UNIT)
        for number, unit in self.units.items():
            at = (number - self.first) * self.capture.numbered
            raw[at : at + len(unit)] = unit
        return bytes(raw)

    def owners(self) -> list[int]:
        """The numbers of its ranges."""
        return [number for number, unit in self.units.items() if unit[0] in RANGES]

    def range(
        self,
        name: str | None,
        start: int,
        end: int | None = None,
        *,
        kind: int = RANGE,
        source: int = NVTX,
        value: float | None = None,
        unsigned: bool = False,
        identity: int = 0,
        domain: str | None = None,
        category: int = 0,
        forward: int | None = None,
        sizes: str | None = None,
        color: int | None = None,
        schema: int = 0,
        label: bool = False,  # the collectors knew opspan's own label
        parent: int = 0,  # with label, of ITT
        inputs: tuple[str | None, str | None, str | None]
        | None = None,  # types, strides and values of inputs, for ops of torch
        stack: str | None = None,  # for ops of torch without a forward op
    ) -> int:
        text = self.capture.text
        flags, word = value_word(value, unsigned)
        flags |= 4 if color is not None else 0
        flags |= 8 if forward is not None else 0
        flags |= 64 if label else 0
        color, schema = (parent & 0xFFFFFFFF, parent >> 32) if parent else (color, schema)
        named = text(domain)
        if inputs is not None:
            flags |= 128
            color, schema, named = map(text, inputs)
        if stack is not None:
            flags |= 256
            forward = text(stack)
        body = struct.pack("<qq8sQ", start, end or 0, word, identity)
        body += struct.pack("<6I", named, category, forward or 0, text(sizes), color or 0, schema)
        return self.put(kind, source, flags, text(name), body)

    def torch(
        self, name: str, start: int, end: int | None = None, *, seq: int | None = None, op_id: int = 0, **more
    ) -> int:
        """A range as `record` writes torch's."""
        more = {"category": OP, **more}
        return self.range(name, start, end, source=TORCH, value=seq, identity=op_id, **more)

    def end(self, time: int, identity: int, source: int = NVTX) -> int:
        return self.put(END, source, 0, 0, struct.pack("<qQ", time, identity))

    def foreign_end(self, time: int, tid: int, unit: int) -> int:
        return self.put(END, 0, 16, 0, struct.pack("<qQIIQ", time, 0, tid, 0, unit))

    def attribute(
        self, owner: int, key: str, *values: float | str | bytes, unsigned: bool = False, by_id: bool = False
    ) -> int:
        flags = 32 if by_id else 0
        first = values[0] if values else 0
        if isinstance(first, str):
            kind, count, words = TEXT, 1, struct.pack("<I", self.capture.text(first))
        elif isinstance(first, bytes):
            kind, count, words = BYTES, len(first), first
        else:
            kind = DOUBLE if isinstance(first, float) else UINT if unsigned else INT
            count = len(values)
            words = struct.pack(f"<{count}{'d' if kind == DOUBLE else 'Q' if unsigned else 'q'}", *values)
        return self.put(ATTRIBUTE, 0, flags, self.capture.text(key), struct.pack("<QII", owner, kind, count) + words)

    def blob(self, owner: int, raw: bytes, schema: int = 0) -> None:
        """A payload, in as many units as it takes; the last is never full."""
        for at in range(0, len(raw) + 1, 48):
            part = raw[at : at + 48]
            self.put(BLOB, 0, len(part), schema, struct.pack("<Q", owner) + part)

    def ids(self, owner: int, identity: tuple[int, int, int], parent: tuple[int, int, int] = (0, 0, 0)) -> int:
        return self.put(IDS, ITT, 0, 0, struct.pack("<7Q", owner, *identity, *parent))

    def relation(self, time: int, head: tuple[int, int, int], kind: int, tail: tuple[int, int, int]) -> int:
        return self.put(RELATION, ITT, kind, 0, struct.pack("<q6Q", time, *head, *tail))

    def name_thread(self, tid: int, name: str) -> int:
        return self.put(NAME, NVTX, 0, self.capture.text(name), struct.pack("<4I", 1, tid, 0, 0))

    def name_category(self, number: int, name: str, domain: str | None = None) -> int:
        body = struct.pack("<4I", 2, number, self.capture.text(domain), 0)
        return self.put(NAME, NVTX, 0, self.capture.text(name), body)

    def counter(self, time: int, name: str, value: float, *, unsigned: bool = False, domain: str | None = None) -> int:
        flags, word = value_word(value, unsigned)
        body = struct.pack("<q8sI", time, word, self.capture.text(domain))
        return self.put(COUNTER, ITT, flags, self.capture.text(name), body)

    def schema(
        self,
        number: int,
        name: str | None,
        entries: list[tuple],  # (name, type, offset[, flags[, detail]])
        *,
        domain: str | None = None,
        size: int = 0,
        kind: int = STATIC,
    ) -> int:
        text = self.capture.text
        body = struct.pack("<Q4I", number, text(domain), len(entries), size, kind)
        unit = self.put(SCHEMA, NVTX, 0, text(name), body)
        raw = b""
        for entry_name, entry_type, offset, *more in entries:
            flags, detail = (*more, 0, 0)[:2]
            raw += struct.pack("<4Q2I", flags, entry_type, offset, detail, text(entry_name), 0)
        self.blob(unit, raw)
        return unit

    def memory(self, time: int, what: int, address: int, size: int, total: int = 0, device: int | None = None) -> int:
        """what: 0 taken, 1 given back, 2 could not be got. device: None is the host."""
        kind, number = (0, -1) if device is None else (1, device)
        return self.put(MEMORY, TORCH, what, 0, struct.pack("<qQqqii", time, address, size, total, kind, number))

    def state(self, time: int, resumed: bool) -> int:
        return self.put(STATE, ITT, int(resumed), 0, struct.pack("<q", time))


@dataclass
class Capture:
    pid: int = 100
    parent_pid: int = 1
    host: str = "box"
    arguments: tuple[str, ...] = ("python", "train.py")
    environment: tuple[str, ...] = ()  # NAME=value
    session: tuple[int, int] = (0, 0)  # time and process; 0: as of older writers
    state: int = 1
    producer: int = 1
    lost: int = 0
    forked: bool = False
    version: int = 5
    halves: bool = True  # ranges that fit take half a line; False: as older writers
    open_ns: tuple[int, int] = (1_000, 1_700_000_000_000_001_000)  # monotonic, UTC
    close_ns: tuple[int, int] = (9_000, 1_700_000_000_000_009_000)
    threads: list[Thread] = field(default_factory=list)
    texts: dict[bytes, int] = field(default_factory=dict)
    spare_units: int = 5  # left unwritten at the end of each thread

    def thread(self, tid: int, name: str = "", chunk_units: int = 63) -> Thread:
        """A thread's log; asking again for the same tid begins another log, as when the number is used again."""
        thread = Thread(self, tid, name, chunk_units)
        self.threads.append(thread)
        return thread

    def text(self, text: str | bytes | None) -> int:
        if text is None:
            return 0
        raw = text.encode() if isinstance(text, str) else text
        return self.texts.setdefault(raw, len(self.texts) + 1)

    @property
    def numbered(self) -> int:
        """Bytes of what is numbered."""
        return HALF if self.halves else UNIT

    # --- bytes

    def header(self) -> bytes:
        arguments = b"".join(argument.encode() + b"\0" for argument in self.arguments) + b"\0"
        raw = b"OPSPANCP" + struct.pack("<4I", self.version, PAGE, self.pid, self.parent_pid)
        raw += struct.pack("<4q", *self.open_ns, *self.close_ns)
        raw += struct.pack("<IIQII", self.state, self.producer, self.lost, self.forked, 0)
        raw += self.host.encode().ljust(64, b"\0") + arguments.ljust(3072, b"\0")
        raw += struct.pack("<qI4x", *self.session) + b"".join(text.encode() + b"\0" for text in self.environment)
        return raw.ljust(PAGE, b"\0")

    def chunks(self) -> list[bytes]:
        """Event chunks of all threads, doubling, taking turns; then the texts."""
        queues = []
        for thread in self.threads:
            queue, first, size = [], 0, thread.chunk_units * UNIT
            raw = thread.bytes() + bytes(UNIT * self.spare_units)
            while first < len(raw):
                content = raw[first : first + size].ljust(size, b"\0")
                number = thread.first + first // self.numbered
                queue.append(chunk(3 if self.halves else 1, content, thread.tid, number, thread.name))
                first, size = first + size, size * 2 + UNIT
            queues.append(queue)
        chunks = []
        while any(queues):
            chunks += [queue.pop(0) for queue in queues if queue]
        return [*chunks, *self._text_chunks()]

    def to_bytes(self) -> bytes:
        return self.header() + b"".join(self.chunks())

    def write(self, path: Path) -> Path:
        path.write_bytes(self.to_bytes())
        return path

    def _text_chunks(self) -> list[bytes]:
        entries = []
        for raw, number in self.texts.items():
            entries.append(struct.pack("<II", len(raw) + 1, number) + raw.ljust((len(raw) + 7) // 8 * 8, b"\0"))
        half = len(entries) // 2  # two chunks, so that there is more than one
        return [chunk(2, b"".join(part)) for part in (entries[:half], entries[half:])]


def chunk(kind: int, content: bytes, tid: int = 0, first: int = 0, name: str = "") -> bytes:
    whole = (UNIT + len(content) + PAGE - 1) // PAGE * PAGE
    head = struct.pack("<IIQIIQ16s16x", 0x4B4E4843, kind, whole, tid, 0, first, name.encode())
    return (head + content).ljust(whole, b"\0")


# opspan's own extended payload, "opspan.op".
OWN_ENTRIES = [("seq", 17, 0), ("op_id", 18, 8), ("fwd_tid", 16, 16), ("kind", 16, 20), ("sizes", 80, 24)]


def own_payload(seq: int, op_id: int, forward: int, kind: int, sizes: int) -> bytes:
    return struct.pack("<qQIIQ", seq, op_id, forward, kind, sizes)


def run(path: Path) -> Path:
    """A step of a model: forward on one thread, backward on another."""
    made = Capture()
    main, back = made.thread(100, "main"), made.thread(101, "autograd")
    main.range("ProfilerStep#7", 1_000, 9_000, source=2, category=STEP)
    main.torch("aten::linear", 1_200, 3_000, seq=5, op_id=1, sizes="[[2, 4], [3, 4]]")
    main.torch("aten::addmm", 1_300, 2_000, seq=5, op_id=2, sizes="[[3], [2, 4], [4, 3]]")
    back.torch("AddmmBackward0", 5_500, 7_000, seq=5, op_id=3, category=BACKWARD, forward=100)
    back.torch("aten::mm", 5_600, 6_100, op_id=4, category=OP)
    return made.write(path)


# Every source goes through the tests of tests/readers/samples.py with these files.
SAMPLES = {"of one process": lambda folder: run(folder / "run.opspan")}
