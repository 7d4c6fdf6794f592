"""The capture reader once more, unit by unit in plain Python: slow, obvious, and built on other code than the reader.

Only for undamaged files. Rows are dicts with the columns of the tables ranges and relations that a capture fills.
"""

from __future__ import annotations

import json
import re
import struct

from labels.grammar import parse
from opspan.labels import KIND_NAMES, Kind, kind_of

PAGE, UNIT = 4096, 64
SHORT, MODEL, LIKE, BLOCK = range(15, 19)
SOURCES = {1: "torch", 2: "user", 3: "nvtx", 4: "itt"}
OWN_KEYS = {"kind": "iu", "seq": "iu", "op_id": "iu", "fwd_tid": "iu", "payload": "iud", "name": "t", "sizes": "t"}
OWN_KEYS |= {"category": "t", "class": "t", "args": "t"}
TYPES = {1: "i", 2: "u", 3: "d", 4: "t", 5: "b"}
RELATIONS = ["is_unknown", "is_dependent_on", "is_sibling_of", "is_parent_of", "is_continuation_of", "is_child_of"]
RELATIONS += ["is_continued_by", "is_predecessor_to"]


def decode(raw: bytes) -> tuple[list[dict], list[dict]]:
    pid = struct.unpack_from("<I", raw, 16)[0]
    texts, logs = contents(raw)
    units = [
        (log, number, tid, unit)
        for log, (tid, numbered) in enumerate(logs)
        for number, unit in sorted(numbered.items())
        if unit[0]
    ]
    ranges = {}
    for log, number, tid, unit in units:
        if unit[0] in (1, 2, 3, 13):
            ranges[log, number] = Range(len(ranges), log, number, tid, unit, texts)
    names = {}
    for _, _, _, unit in units:
        what, number, domain = struct.unpack_from("<3I", unit, 8)
        if unit[0] == 9 and what == 2:
            names[domain, number] = texts[name_id(unit)]
    apply_ends(units, ranges)
    tasks = {}
    for log, _, _, unit in units:
        if unit[0] == 7:
            owner, *ids = struct.unpack_from("<7Q", unit, 8)
            if (log, owner) in ranges:
                ranges[log, owner].has_id = True
                if any(ids[3:]):
                    ranges[log, owner].parent = tuple(ids[3:])
                tasks.setdefault(tuple(ids[:3]), []).append(ranges[log, owner])
    for range_ in ranges.values():
        if range_.has_label and range_.source == 4:
            tasks.setdefault((range_.id, 0x6F7073, 0), []).append(range_)
            if range_.parent_word:
                range_.parent = (range_.parent_word % 2**63, 0x6F7073, range_.parent_word >> 63)
    apply_attributes(units, ranges, tasks, texts)
    apply_payloads(units, ranges, texts)
    rows = [row(range_, pid, names, tasks) for range_ in ranges.values()]
    relations = []
    for _, _, _, unit in units:
        if unit[0] == 8:
            time, *ids = struct.unpack_from("<q6Q", unit, 8)
            kind = struct.unpack_from("<H", unit, 2)[0]
            head, tail = (at_time(tasks.get(tuple(part), []), time) for part in (ids[:3], ids[3:]))
            relations.append({"range_id": head, "relation": RELATIONS[kind], "other_id": tail, "time_ns": time})
    return rows, relations


def contents(raw: bytes) -> tuple[dict[int, str | None], list[tuple[int, dict[int, bytes]]]]:
    """Texts by id, and (tid, units by number) for each log."""
    texts: dict[int, str | None] = {0: None}
    logs: list[tuple[int, dict[int, bytes]]] = []
    at = PAGE
    while at < len(raw):
        magic, kind, size, tid, _, first = struct.unpack_from("<IIQIIQ", raw, at)
        if magic != 0x4B4E4843:
            raise ValueError("only undamaged files")
        body = raw[at + UNIT : at + size]
        if kind == 2:
            place = 0
            while place + 8 <= len(body) and (length := struct.unpack_from("<I", body, place)[0]):
                number = struct.unpack_from("<I", body, place + 4)[0]
                texts[number] = body[place + 8 : place + 7 + length].decode()
                place += 8 + (length - 1 + 7) // 8 * 8
        else:
            mine = [log for log in logs if log[0] == tid]
            if first == 0 or not mine:
                mine = [(tid, {})]
                logs.append(mine[0])
            for i in range(len(body) // UNIT):
                line = body[i * UNIT : (i + 1) * UNIT]
                if kind == 1:
                    mine[-1][1][first + i] = line
                elif line[0] in (SHORT, LIKE, BLOCK):
                    for number, half in ((first + 2 * i, line[:32]), (first + 2 * i + 1, line[32:])):
                        mine[-1][1][number] = whole(half, mine[-1][1]) if half[0] else bytes(UNIT)
                else:
                    mine[-1][1][first + 2 * i] = line
        at += size
    return texts, logs


def whole(half: bytes, before: dict[int, bytes]) -> bytes:
    """The unit that says the same."""
    if half[0] == BLOCK:
        what, *rest = struct.unpack("<Qqqq", half)
        return struct.pack("<BBHIqQqqii16x", 14, 1, what >> 8 & 255, 0, rest[0], what >> 16, *rest[1:], 0, -1)
    kind, what, high, name, start, low, extra, identity, value = struct.unpack("<BBHIqIIII", half)
    end = start + (high << 32 | low) - 1 if low else 0
    if kind == LIKE:
        model = before[name]
        _, source, flags, name, *_ = struct.unpack_from("<BBHI", model)
        flags, rest = flags | what, list(struct.unpack_from("<6I", model, 40))
        rest[4 if source == 4 and flags & 64 else 2] = extra
    else:
        source, rest = 1, [0, what & 15, extra, 0, 0, 0]
        flags = sum(flag for bit, flag in ((16, 1), (32, 8), (64, 256), (128, 512)) if what & bit)
    return struct.pack("<BBHIqqqQ6I", 1, source, flags, name, start, end, value, identity, *rest)


def name_id(unit: bytes) -> int:
    return struct.unpack_from("<I", unit, 4)[0]


class Range:
    def __init__(self, place: int, log: int, number: int, tid: int, unit: bytes, texts: dict) -> None:
        self.place, self.log, self.number, self.tid, self.kind = place, log, number, tid, unit[0]
        self.source, self.flags = unit[1], struct.unpack_from("<H", unit, 2)[0]
        fields = struct.unpack_from("<qqqQ6I", unit, 8)
        self.start, self.end, self.value, self.id, domain, self.category, self.forward, sizes, self.color, _ = fields
        self.schema = fields[9]
        self.inputs: list[str | None] = [None] * 3
        if self.source == 1 and self.flags & 128:
            self.inputs = [texts[self.color], texts[self.schema], texts[domain]]
            self.schema = domain = 0
        self.stack = texts[self.forward] if self.source == 1 and self.flags & (256 | 8) == 256 else None
        self.parent_word = self.schema << 32 | self.color
        self.has_label = self.kind == 1 and self.source in (3, 4) and bool(self.flags & 64)
        self.name = texts[name_id(unit)]
        if self.kind == 13 and self.name is None:
            self.name = texts[domain]
        self.overload: str | None = None
        if self.source == 1 and self.flags & 512 and (parts := re.match(r"(.*)\.([^.]*)\Z", self.name or "")):
            self.name, self.overload = parts.groups()
        self.domain_id, self.domain, self.sizes = domain, texts[domain], texts[sizes]
        self.end_tid = tid
        self.parent, self.has_id = None, False
        self.own: dict[str, object] = {}
        self.payload_type = "_iud"[self.flags & 3]
        self.others: dict[str, object] = {}
        self.op: dict[str, object] | None = None


def apply_ends(units: list, ranges: dict) -> None:
    ends = [(tid, unit) for _, _, tid, unit in units if unit[0] == 4]
    ends.sort(key=lambda end: struct.unpack_from("<q", end[1], 8))
    was_open = {range_ for range_ in ranges.values() if range_.end == 0}
    for tid, unit in ends:
        flags, (time, _, owner_tid, _, owner_unit) = (
            struct.unpack_from("<H", unit, 2)[0],
            struct.unpack_from("<qQIIQ", unit, 8),
        )
        if flags & 16:
            mine = [
                r for r in was_open if r.kind == 1 and (r.tid, r.number) == (owner_tid, owner_unit) and r.start <= time
            ]
            if mine:
                last = max(mine, key=lambda r: (r.start, r.log))
                last.end, last.end_tid = time, tid
    for range_ in was_open:
        if range_.kind in (2, 13):
            mine = []
            for tid, unit in ends:
                time, identity = struct.unpack_from("<qQ", unit, 8)
                if not struct.unpack_from("<H", unit, 2)[0] & 16 and identity == range_.id and time >= range_.start:
                    mine.append((time, tid))
            if mine:
                range_.end, range_.end_tid = min(mine, key=lambda end: end[0])


def at_time(bearers: list[Range], time: int) -> int | None:
    before = [range_ for range_ in bearers if range_.start <= time]
    if before:
        return max(before, key=lambda range_: (range_.start, range_.place)).place
    return min(bearers, key=lambda range_: (range_.start, range_.place)).place if bearers else None


def apply_attributes(units: list, ranges: dict, tasks: dict, texts: dict) -> None:
    by_place = {range_.place: range_ for range_ in ranges.values()}
    ids = {(log, number): unit for log, number, _, unit in units if unit[0] == 7}
    for log, _, _, unit in units:
        if unit[0] != 5:
            continue
        owner, kind, count = struct.unpack_from("<QII", unit, 8)
        if struct.unpack_from("<H", unit, 2)[0] & 32:
            identity = struct.unpack_from("<3Q", ids[log, owner], 16)
            place = at_time(tasks.get(identity, []), 1 << 63)
            range_ = None if place is None else by_place[place]
        else:
            range_ = ranges.get((log, owner))
        if range_ is None:
            continue
        key, code, body = texts[name_id(unit)] or "", TYPES[kind], unit[24:]
        if code == "t":
            values = [texts[struct.unpack_from("<I", body)[0]]]
        elif code == "b":
            values = [body[:count].hex()]
        else:
            values = list(struct.unpack_from(f"<{count}{'qQd'['iud'.index(code)]}", body))
        is_ours = range_.source in (1, 2) or (range_.source in (3, 4) and range_.domain == "opspan")
        if is_ours and code in OWN_KEYS.get(key, ""):
            range_.own[key] = values[0]
            if key == "payload":
                range_.payload_type = code
        else:
            range_.others.setdefault(key, []).extend(values)


def apply_payloads(units: list, ranges: dict, texts: dict) -> None:
    """Only opspan's own schema; others are tested by example."""
    for log, _, _, unit in units:
        if unit[0] == 6:
            owner = struct.unpack_from("<Q", unit, 8)[0]
            if (log, owner) in ranges:
                seq, op_id, forward, kind, sizes = struct.unpack_from("<qQIIQ", unit, 16)
                ranges[log, owner].op = {
                    "seq": seq,
                    "op_id": op_id,
                    "forward": forward,
                    "kind": kind,
                    "sizes": texts[sizes],
                }


def first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def row(range_: Range, pid: int, names: dict, tasks: dict) -> dict:
    source, is_nvtx = SOURCES.get(range_.source), range_.source == 3
    ours = range_.source in (3, 4) and range_.domain == "opspan"
    labelled = range_.source in (3, 4) and range_.domain in (None, "opspan", "PyTorch", "pytorch")
    beside = range_.has_label or (ours and (range_.op is not None or (range_.source == 4 and range_.has_id)))
    in_unit = range_.source == 1 or range_.has_label
    has_op_id = in_unit or (range_.source == 2 and range_.kind not in (2, 13))
    label = parse(range_.name) if labelled and not beside and range_.name is not None else None
    own, op = range_.own, range_.op or {}
    kind = range_.category if 0 < range_.category < len(KIND_NAMES) else None
    if is_nvtx and ours and range_.category in (Kind.USER, Kind.MODULE, Kind.STEP) and label:
        # A user's own range has no number of torch's: where it seems to, the text only looks like a label.
        label = label if (label.seq, label.op_id, label.forward_tid) == (None, None, None) else None
    torch_kind = kind is not None and kind not in (Kind.USER, Kind.MODULE, Kind.STEP)
    value = own.get("payload", range_.value)
    payload_type = range_.payload_type
    seq = None
    if (in_unit or (is_nvtx and ours and torch_kind)) and range_.flags & 3 in (1, 2):
        seq, payload_type = range_.value, "_"
    seq = first(seq, op.get("seq") if op.get("seq", -1) >= 0 else None, own.get("seq"), label and label.seq)
    name = first(own.get("name"), label and label.name, range_.name)
    class_name = first(own.get("class"), label and label.class_name)
    guess = kind_of(name, seq, class_name) if labelled and name is not None else None
    carried = kind if source in ("torch", "user") or (is_nvtx and ours) else None
    beside = [kind if 0 < kind < len(KIND_NAMES) else None for kind in (op.get("kind", 0), own.get("kind", 0))]
    found = first(carried, *beside, guess, 0)
    forward = range_.forward if in_unit and range_.flags & 8 else None
    forward = first(forward, op.get("forward"), own.get("fwd_tid"), label and label.forward_tid)
    if forward is None and ours and not in_unit and not range_.schema and "op_id" not in own and found == Kind.BACKWARD:
        forward = pid
    category = None
    if is_nvtx and range_.category and not (range_.domain == "opspan" and range_.category < len(KIND_NAMES)):
        category = names.get((range_.domain_id, range_.category)) or str(range_.category)
    raw = struct.pack("<Q", value & ((1 << 64) - 1)) if isinstance(value, int) else struct.pack("<d", value)
    end = range_.end if range_.kind != 3 and range_.end >= range_.start else 0
    parent = range_.parent
    members = {key: values[0] if len(values) == 1 else values for key, values in range_.others.items()}
    return {
        "id": range_.place,
        "pid": pid,
        "tid": range_.tid,
        "end_tid": range_.end_tid if range_.end_tid != range_.tid else None,
        "start_ns": range_.start,
        "end_ns": end or None,
        "name": name,
        "text": range_.name if label and label.name != range_.name else None,
        "kind": KIND_NAMES[found],
        "source": source,
        "domain": range_.domain,
        "category": first(own.get("category"), category),
        "color": range_.color if range_.flags & 4 else None,
        "seq": seq,
        "op_id": first(range_.id if has_op_id else None, op.get("op_id"), own.get("op_id"), label and label.op_id)
        or None,
        "forward_tid": forward or None,
        "sizes": first(range_.sizes, op.get("sizes"), own.get("sizes"), label and label.sizes),
        **dict(zip(("input_types", "input_strides", "inputs"), range_.inputs, strict=True)),
        "stack": range_.stack,
        "overload": range_.overload,
        "input_op_ids": label and label.input_op_ids,
        "class_name": class_name,
        "args": first(own.get("args"), label and label.args),
        "payload_int": struct.unpack("<q", raw)[0] if payload_type == "i" else None,
        "payload_uint": struct.unpack("<Q", raw)[0] if payload_type == "u" else None,
        "payload_float": struct.unpack("<d", raw)[0] if payload_type == "d" else None,
        "payload_json": json.dumps(members) if members else None,
        "parent_id": at_time(tasks.get(parent, []), range_.start) if parent else None,
        "is_async": range_.kind in (2, 13),
        "is_mark": range_.kind == 3,
    }
