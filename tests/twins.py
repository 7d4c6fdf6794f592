"""Twins of the analysis in plain Python: nested loops over the definitions of docs/analysis.md, and no cleverness.

Rows are dicts with the columns of the schema. Each function gives what the native one must give, row for row.
"""

from __future__ import annotations

import itertools

Row = dict
LAST = 2**63 - 1


def thread(row: Row) -> tuple:
    return row["rank"], row["pid"], row["tid"]


def order(ranges: list[dict], row: int) -> tuple:
    """The outer one first: it begins earlier or, of two that begin at once, ends later."""
    return ranges[row]["start_ns"], -ranges[row]["end_ns"], row


# --- nest


def nest(given: list[Row], end_ns: int | None = None) -> list[Row]:
    times = [row[name] for row in given for name in ("start_ns", "end_ns") if row[name] is not None]
    last = max(times + ([end_ns] if end_ns is not None and times else []), default=end_ns or 0)
    ranges = [_closed(row, last) for row in given]
    _close_lost(ranges)
    placed = [row for row, found in enumerate(ranges) if found["is_placed"]]
    placed.sort(key=lambda row: order(ranges, row))
    tree: list[int] = []
    for row in placed:
        one = ranges[row]
        around = [ranges[other] | {"row": other} for other in tree if _covers(ranges[other], one)]
        one["overlaps"] = not one["is_leaf"] and any(other["end_ns"] < one["end_ns"] for other in around)
        whole = [other["row"] for other in around if other["end_ns"] >= one["end_ns"]]
        one["parent"] = whole[-1] if whole else None
        one["depth"] = 0 if one["parent"] is None else ranges[one["parent"]]["depth"] + 1
        if not one["is_leaf"] and not one["overlaps"]:
            tree.append(row)
    for row, one in enumerate(ranges):
        children = [ranges[other] for other in tree if ranges[other]["parent"] == row]
        one["is_async"] = not one["is_mark"] and (one["is_apart"] or not one["is_placed"] or one["overlaps"])
        took = (one["end_ns"] - one["start_ns"]) if one["is_placed"] else 0
        own = took - sum(child["end_ns"] - child["start_ns"] for child in children)
        one["self_ns"] = min(own, LAST) if one["is_placed"] and not one["is_async"] else None
        if one["is_mark"]:
            one["end_ns"] = None
    names = ("parent", "depth", "self_ns", "end_ns", "is_open", "is_async", "overlaps")
    return [{name: one[name] for name in names} for one in ranges]


def _closed(row: Row, last: int) -> Row:
    is_mark = bool(row["is_mark"])
    is_apart = bool(row["is_async"]) or (None not in (row["end_tid"], row["tid"]) and row["end_tid"] != row["tid"])
    start = row["start_ns"]
    end = start if is_mark else last if row["end_ns"] is None else row["end_ns"]
    if start is not None:
        end = max(start, end)
    return {
        **row,
        "end_ns": end,
        "is_mark": is_mark,
        "is_apart": is_apart,
        "is_leaf": is_mark or is_apart,
        "is_open": row["end_ns"] is None and not is_mark,
        "is_placed": start is not None and row["tid"] is not None,
        "parent": None,
        "depth": 0,
        "overlaps": False,
    }


def _close_lost(ranges: list[Row]) -> None:
    """An open range inside one of its own stack that ended, ended with it at the latest."""
    stacks = [one for one in ranges if one["is_placed"] and not one["is_leaf"]]
    for one in stacks:
        if not one["is_open"]:
            continue
        for other in stacks:
            same = thread(one) == thread(other) and one["domain"] == other["domain"]
            if same and not other["is_open"] and other["start_ns"] < one["start_ns"] < other["end_ns"]:
                one["end_ns"] = min(one["end_ns"], other["end_ns"])


def _covers(outer: Row, inner: Row) -> bool:
    return thread(outer) == thread(inner) and outer["start_ns"] <= inner["start_ns"] < outer["end_ns"]


# --- launches


def innermost(ranges: list[Row], points: list[Row]) -> list[int | None]:
    """Ranges are nested; `is_async` of those that overlap does not count here."""
    found: list[int | None] = []
    for point in points:
        around = []
        for row, one in enumerate(ranges):
            if None in (one["start_ns"], one["end_ns"], one["tid"], point["time_ns"], point["tid"]):
                continue
            if thread(one) == thread(point) and one["start_ns"] <= point["time_ns"] < one["end_ns"]:
                around.append((not one["is_async"] or one["overlaps"], order(ranges, row), row))
        found.append(max(around)[2] if around else None)
    return found


def match(calls: list[Row], work: list[Row]) -> list[tuple[int | None, bool]]:
    found: list[tuple[int | None, bool]] = []
    for effect in work:
        causes = []
        for row, call in enumerate(calls):
            same = all(call[name] == effect[name] for name in ("rank", "pid", "correlation_id"))
            if same and effect["correlation_id"] is not None:
                causes.append((_time(call), row))
        causes.sort()
        before = [row for time, row in causes if time <= _time(effect)]
        chosen = before[-1] if before else causes[0][1] if causes else None
        found.append((chosen, len(causes) > 1))
    return found


def _time(row: Row) -> int:
    return -(2**63) if row["start_ns"] is None else row["start_ns"]


# --- autograd


def link(ranges: list[Row], is_forward: list[bool], is_backward: list[bool]) -> list[tuple[int | None, str | None]]:
    """Links backward ranges to forward ops. The flags say which rows are either; names play no part here."""
    found: list[tuple[int | None, str | None]] = []
    for row, one in enumerate(ranges):
        if not is_backward[row] or one["seq"] is None or one["start_ns"] is None:
            found.append((None, None))
            continue
        before = []
        for other, op in enumerate(ranges):
            if not is_forward[other] or None in (op["seq"], op["start_ns"], op["tid"]):
                continue
            same = (op["rank"], op["pid"], op["seq"]) == (one["rank"], one["pid"], one["seq"])
            if (
                same
                and op["start_ns"] < one["start_ns"]
                and (not one["forward_tid"] or op["tid"] == one["forward_tid"])
            ):
                before.append((op["start_ns"], other))
        if not before:
            found.append((None, "no forward in the trace"))
            continue
        last = max(before)[1]
        threads = {ranges[other]["tid"] for _, other in before}
        again = {_era(ranges, is_forward, other) for _, other in before}
        how = "linked"
        if len(threads) > 1:
            how = "ambiguous: several threads used this seq"
        elif len(again) > 1:
            how = "ambiguous: the thread used this seq again"
        found.append((last, how))
    return found


def _era(ranges: list[Row], is_forward: list[bool], row: int) -> int:
    """How often the seq of the row's thread went back until the row."""
    ops = [
        (op["start_ns"], op["seq"], other)
        for other, op in enumerate(ranges)
        if is_forward[other]
        and None not in (op["seq"], op["start_ns"], op["tid"])
        and thread(op) == thread(ranges[row])
    ]
    ops.sort()
    until = ops[: [other for _, _, other in ops].index(row) + 1]
    return sum(after[1] < before[1] for before, after in itertools.pairwise(until))


# --- sums


def rollup(parents: list[int | None], work: list[Row]) -> list[tuple[int, int]]:
    """(own, with all inside) device time; parents make no ring."""
    own = [0] * len(parents)
    for one in work:
        if None not in (one["range"], one["start_ns"], one["end_ns"]) and one["range"] < len(parents):
            own[one["range"]] += max(0, one["end_ns"] - one["start_ns"])
    total = list(own)
    for row, value in enumerate(own):
        above = parents[row]
        while above is not None:
            total[above] += value
            above = parents[above]
    return [(min(one, LAST), min(all_, LAST)) for one, all_ in zip(own, total, strict=True)]


def nearest(parents: list[int | None], marked: list[bool]) -> list[int | None]:
    found: list[int | None] = []
    for row in range(len(parents)):
        at: int | None = row
        while at is not None and not marked[at]:
            at = parents[at]
        found.append(at)
    return found


# --- waits

WAITS = {"cudaEventSynchronize": "synchronise", "cudaMemcpy": "blocking copy", "cudaMalloc": "allocation"}
WAITS |= {"cudaMemcpyAsync": "async", "cuMemAlloc": "allocation", "cudaLaunchKernel": None, None: None}


def _why(row: Row, copies: list[Row]) -> str | None:
    rule = WAITS[row["name"]]
    sides = [(one["copy_from"], one["copy_to"]) for one in copies]
    if row["api"] == "cuda_backtrace":
        return None
    if rule == "async":
        return "blocking copy" if any("pageable" in both for both in sides) else None
    if rule == "blocking copy" and sides and all(both == ("device", "device") for both in sides):
        return None
    return rule


def _is_around(one: Row, other: Row) -> bool:
    """Whether a wait lies in another one of its thread."""
    thread = ("rank", "pid", "tid")
    if any(one[name] != other[name] for name in thread) or None in (one["pid"], one["tid"]):
        return False
    if None in (one["start_ns"], one["end_ns"], other["start_ns"]):
        return False
    until = max(other["start_ns"], other["start_ns"] if other["end_ns"] is None else other["end_ns"])
    if (one["start_ns"], one["end_ns"]) == (other["start_ns"], until) and one["call"] > other["call"]:
        return False
    return one["start_ns"] <= other["start_ns"] < one["end_ns"] and until <= one["end_ns"]


def _busy_ns(row: Row, work: list[Row]) -> int | None:
    ran = [one for one in work if one["kind"] in ("kernel", "memcpy") and not one["is_overhead"]]
    ran = [one for one in ran if one["rank"] == row["rank"]]
    pids = {one["pid"] for one in ran}
    if row["pid"] is None or None in pids or not pids or None in (row["start_ns"], row["end_ns"]):
        return None
    ran = [one for one in ran if one["pid"] == row["pid"] and None not in (one["start_ns"], one["end_ns"])]
    edges = sorted({one[name] for one in [row, *ran] for name in ("start_ns", "end_ns")})
    busy = 0
    for begin, end in itertools.pairwise(edges):
        if any(one["start_ns"] <= begin and end <= one["end_ns"] for one in ran):
            busy += (end - begin) * (row["start_ns"] <= begin and end <= row["end_ns"])
    return min(busy, LAST)


def _in_item(row: int | None, given: list[Row]) -> bool:
    while row is not None:
        if given[row]["name"] == "aten::item":
            return True
        row = given[row]["parent"]
    return False


def waits(given: list[Row], calls: list[Row], work: list[Row]) -> list[Row]:
    waiting = []
    for number, row in enumerate(calls):
        copies = [one for one in work if one["kind"] == "memcpy" and one["call"] == number]
        waiting.append(row | {"call": number, "why": _why(row, copies)})
    waiting = [row for row in waiting if row["why"]]
    found = []
    for row in waiting:
        if any(_is_around(other, row) for other in waiting if other is not row):
            continue
        start, end = row["start_ns"], row["end_ns"]
        took = None if None in (start, end) else min(max(end - start, 0), LAST)
        fetches = row["why"] in ("synchronise", "blocking copy") and _in_item(row["range"], given)
        found.append(
            {name: row[name] for name in ("call", "rank", "pid", "tid", "start_ns", "end_ns")}
            | {"wait_ns": took, "why": "item" if fetches else row["why"], "range": row["range"]}
            | {"busy_ns": _busy_ns(row, work)}
        )
    return found


# --- from call to work


def _launched(calls: list[Row], work: list[Row]) -> list[Row]:
    found = []
    for number, row in enumerate(work):
        if row["kind"] in ("kernel", "memcpy") and not row["is_overhead"] and row["call"] is not None:
            call = calls[row["call"]]
            found.append(row | {"work": number, "called_ns": call["start_ns"], "called_until": call["end_ns"]})
    return found


def _from_to(start: int | None, end: int | None) -> int | None:
    return None if None in (start, end) else max(-LAST - 1, min(LAST, end - start))


def _length(start: int | None, end: int | None) -> int | None:
    return None if None in (start, end) else min(LAST, max(0, end - start))


def delays(calls: list[Row], work: list[Row]) -> list[Row]:
    rows = _launched(calls, work)
    found = []
    for row in rows:
        start, called, until = row["start_ns"], row["called_ns"], row["called_until"]
        others = [other for other in rows if other["call"] == row["call"]]
        starts = [(other["start_ns"], other["work"]) for other in others if other["start_ns"] is not None]
        took = [_length(other["start_ns"], other["end_ns"]) for other in others]
        is_known = None not in took and None not in (called, until)
        found.append(
            {
                "work": row["work"],
                "call": row["call"],
                "is_first": None if start is None else (start, row["work"]) == min(starts),
                "delay_ns": _from_to(until, start),
                "ahead_ns": _from_to(called, start),
                "is_short": min(LAST, sum(took)) < _length(called, until) if is_known else None,
            }
        )
    return found


def queues(calls: list[Row], work: list[Row]) -> dict[tuple, list[tuple]]:
    """For each stream (time_ns, queued) where it changes."""
    waiting: dict[tuple, dict[int, tuple[int, int]]] = {}
    for row in _launched(calls, work):
        stream = tuple(row[name] for name in ("rank", "pid", "device_id", "context_id", "stream_id"))
        if None not in (row["called_ns"], row["start_ns"]):
            of_stream = waiting.setdefault(stream, {})
            _, began = of_stream.get(row["call"], (None, row["start_ns"]))
            of_stream[row["call"]] = (row["called_ns"], min(began, row["start_ns"]))
    found = {}
    for stream, of_stream in waiting.items():
        last, changes = 0, []
        for time in sorted({time for pair in of_stream.values() for time in pair}):
            length = sum(called <= time < began for called, began in of_stream.values())
            if length != last:
                changes.append((time, length))
            last = length
        if changes:
            found[stream] = changes
    return found


def copies(work: list[Row]) -> dict[tuple, tuple]:
    found: dict[tuple, list[int]] = {}
    for row in work:
        took = _length(row["start_ns"], row["end_ns"]) or 0
        if row["kind"] == "memcpy" and not row["is_overhead"] and (row["bytes"] or 0) > 0 and took:
            direction = ("rank", "device_id", "peer_device_id", "copy_from", "copy_to")
            sums = found.setdefault(tuple(row[name] for name in direction), [0, 0, 0])
            sums[:] = [sums[0] + 1, sums[1] + row["bytes"], sums[2] + took]
    return {
        direction: (count, min(LAST, moved), min(LAST, took), float(moved) / float(took) * 1e9)
        for direction, (count, moved, took) in found.items()
    }


def longest_common(a: list[int], b: list[int]) -> int:
    """How long the longest sequence is that is in both, with anything in between."""
    if not (a and b):
        return 0
    if a[0] == b[0]:
        return 1 + longest_common(a[1:], b[1:])
    return max(longest_common(a[1:], b), longest_common(a, b[1:]))


# --- repeating


def check_turns(codes: list[int], begins: list[int], period: int) -> None:
    """Asserts the rules of docs/analysis.md for the turns of a repeating pattern."""
    edges = [*begins, begins[-1] + period]
    assert edges == sorted(set(edges))
    assert edges[-1] <= len(codes)
    turns = [codes[begin:end] for begin, end in itertools.pairwise(edges)]

    def alike(one: list[int], other: list[int]) -> bool:
        same = sum(a == b for a, b in zip(one, other, strict=False))
        return len(one) == len(other) == period and 10 * same >= 9 * period

    # The turn before the first is not among those that were found, nor is that behind the last: regular turns only
    # by one of them are at the ends.
    around = [codes[max(0, edges[0] - period) : edges[0]], *turns, codes[edges[-1] : edges[-1] + period]]
    regular = [alike(one, around[number]) or alike(one, around[number + 2]) for number, one in enumerate(turns)]
    assert sum(regular) >= 3
    assert 4 * sum(regular) >= 3 * len(turns)
    assert regular[0]
    assert regular[-1]
    assert any(len(set(turn)) > 1 for turn in turns)
