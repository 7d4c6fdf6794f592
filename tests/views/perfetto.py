"""A Chrome trace as Perfetto takes it: what it would drop, or hang on nothing, is an AssertionError here.

https://github.com/google/perfetto, src/trace_processor/importers/json: spans of a track have to lie in each other or
beside each other; an arrow needs both ends, and each end the span that it begins in.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]
TIMES = {"ranges": "start_ns", "calls": "start_ns", "work": "start_ns", "functions": "start_ns"}
TIMES |= {"memory": "time_ns", "counters": "time_ns"}


def taken(path: Path) -> list[Event]:
    """The events, where none is lost."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    document = json.loads(path.read_bytes().decode(), parse_float=Decimal, parse_constant=refuse)
    json.dumps(document, default=str, ensure_ascii=False).encode()  # no half of a pair of surrogates
    events: list[Event] = document["traceEvents"]
    assert all({"ph", "pid", "tid", "name"} <= event.keys() for event in events)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    assert not misplaced(events)
    assert not loose_arrows(events)
    return events


def misplaced(events: list[Event]) -> list[tuple[str, str]]:
    """Spans that overlap another of their track in part: the names of both."""
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    found = []
    for track in tracks.values():
        open_spans: list[Event] = []
        for span in sorted(track, key=lambda span: (span["ts"], -span["dur"])):
            while open_spans and end(open_spans[-1]) <= span["ts"]:
                open_spans.pop()
            if open_spans and end(open_spans[-1]) < end(span):
                found.append((open_spans[-1]["name"], span["name"]))
            else:
                open_spans.append(span)
    return found


def end(span: Event) -> Decimal:
    ends: Decimal = span["ts"] + span["dur"]
    return ends


def loose_arrows(events: list[Event]) -> list[Event]:
    """Ends of arrows without the other end, or without a span, or a mark of a span's pair, that begins there."""
    begins = {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] in "Xbi"}
    ends = Counter((event["ph"], event["cat"], event["id"]) for event in events if event["ph"] in "sf")
    return [
        event
        for event in events
        if event["ph"] in "sf"
        and (
            (event["pid"], event["tid"], event["ts"]) not in begins
            or any(ends[phase, event["cat"], event["id"]] != 1 for phase in "sf")
        )
    ]


def rows_of(frames: Any) -> int:
    """How many events there are to be: a row with a time is one."""
    return sum(frames[name][time].count() for name, time in TIMES.items())


def drawn(events: list[Event]) -> int:
    return sum(event["ph"] in "XbiC" for event in events)
