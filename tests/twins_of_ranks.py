"""Matches collectives of several ranks with nested loops, as `over_ranks` of the analysis does."""

from __future__ import annotations

import statistics

Row = dict


def over_ranks(rows: list[Row]) -> list[Row]:
    """For each row the rows that are one collective with it, and its times; `unmatched` is left out."""
    given = [row | {"row": number, "key": _key(row, rows)} for number, row in enumerate(rows)]
    together: list[list[Row]] = []
    for key in {row["key"] for row in given if row["key"] is not None}:
        mine = [row for row in given if row["key"] == key]
        found = [one for one in _one_key(mine) if len(one) > 1]
        if key[0] is None and _times_apart(found, len(mine), given, key) > 0.1:
            found = []
        together += found
    result = [{"with": None, "ranks": None, "transfer_ns": None, "waiting_ns": None, "is_last": None} for _ in given]
    for one in together:
        known = [row["time_ns"] for row in one if row["time_ns"] is not None]
        shortest = min(known, default=None)
        last = max(((row["start_ns"], row["row"]) for row in one if row["time_ns"] == shortest), default=None)
        for row in one:
            waited = None if row["time_ns"] is None else row["time_ns"] - shortest
            is_last = None if shortest is None else (row["start_ns"], row["row"]) == last
            result[row["row"]] = {"with": sorted(other["row"] for other in one), "ranks": len(one)}
            result[row["row"]] |= {"transfer_ns": shortest, "waiting_ns": waited, "is_last": is_last}
    return result


def _place(row: Row) -> tuple:
    return row["rank"], row["pid"], row["device_id"]


def _streams(row: Row, rows: list[Row]) -> list[int]:
    mine = {other["stream_id"] for other in rows if _place(other) == _place(row) and other["group"] is None}
    return sorted(mine)


def _key(row: Row, rows: list[Row]) -> tuple | None:
    if row["start_ns"] is None or row["kind"] is None:
        return None
    ends: tuple = (None, None)
    if row["kind"] in ("send", "recv", "send_recv"):
        source, target = row["source"], row["target"]
        source = row["own_rank"] if source is None and row["kind"] == "send" else source
        target = row["own_rank"] if target is None and row["kind"] == "recv" else target
        if None in (source, target) or source == target:
            return None
        ends = (source, target)
    stream = None
    if row["group"] is None:
        untold = [other for other in rows if other["group"] is None]
        if len({len(_streams(other, rows)) for other in untold}) > 1:
            return None
        stream = _streams(row, rows).index(row["stream_id"])
    return row["group"], row["members"], ends, stream


def _what(row: Row) -> str:
    return "side" if row["kind"] in ("send", "recv", "send_recv") else row["kind"]


def _size(row: Row) -> int:
    is_equal = row["kind"] in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
    return row["bytes"] if is_equal and row["bytes"] is not None else -1


def _one_key(rows: list[Row]) -> list[list[Row]]:
    places: dict[tuple, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["start_ns"], row["row"])):
        places.setdefault(_place(row), []).append(row)
    seqs = [(_place(row), row["seq"]) for row in rows]
    is_side = any(_what(row) == "side" for row in rows)
    if not is_side and all(seq is not None for _, seq in seqs) and len(set(seqs)) == len(seqs):
        return _alike(places, lambda row, _: (_what(row), row["seq"]))

    everywhere = set.intersection(*({_what(row) for row in some} for some in places.values()))
    places = {place: [row for row in some if _what(row) in everywhere] for place, some in places.items()}

    def nth(row: Row, before: list[Row]) -> tuple:
        same = [other for other in before if (_what(other), _size(other)) == (_what(row), _size(row))]
        return _what(row), _size(row), len(same)

    counted = [sorted((_what(row), _size(row)) for row in some) for some in places.values()]
    if all(one == counted[0] for one in counted):
        return _alike(places, nth)
    longest = max(places, key=lambda place: (len(places[place]), [-number for number in place]))
    laid = {number: [row] for number, row in enumerate(places[longest])}
    for place, some in places.items():
        shift = None if place == longest else _shift(places[longest], some)
        for number, row in enumerate(some if shift is not None else []):
            if number + shift in laid:
                laid[number + shift].append(row)
    return list(laid.values())


def _alike(places: dict[tuple, list[Row]], name: object) -> list[list[Row]]:
    found: dict[tuple, list[Row]] = {}
    for some in places.values():
        for number, row in enumerate(some):
            found.setdefault(name(row, some[:number]), []).append(row)
    return list(found.values())


def _shift(long: list[Row], short: list[Row]) -> int | None:
    agreeing = []
    for shift in range(-len(short), len(long) + 1):
        pairs = [(long[number + shift], row) for number, row in enumerate(short) if 0 <= number + shift < len(long)]
        agrees = all(
            _what(one) == _what(other) and (-1 in (_size(one), _size(other)) or _size(one) == _size(other))
            for one, other in pairs
        )
        if agrees and len(pairs) >= (len(short) + 1) // 2:
            ends = [abs(_end(one) - _end(other)) for one, other in pairs]
            agreeing.append((len(pairs), statistics.median(ends), shift))
    most = max((count for count, _, _ in agreeing), default=0)
    best = sorted((apart, shift) for count, apart, shift in agreeing if count == most)
    if len(best) > 1 and best[0][0] * 3 >= best[1][0]:
        return None
    return best[0][1] if best else None


def _end(row: Row) -> int:
    return row["start_ns"] if row["end_ns"] is None else row["end_ns"]


def _times_apart(found: list[list[Row]], _: int, given: list[Row], key: tuple) -> float:
    """Share of rows, of those of a key, that are over on one device before another of their rank began."""
    over = 0
    for one in found:
        if one[0]["kind"] not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"):
            continue
        for row in one:
            mine = [other for other in one if other["rank"] == row["rank"]]
            ends = [other["end_ns"] for other in mine if other["end_ns"] is not None]
            over += bool(ends) and min(ends) < max(other["start_ns"] for other in mine)
    return over / sum(row["key"] == key for row in given)
