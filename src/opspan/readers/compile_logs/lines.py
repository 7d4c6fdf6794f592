"""Reads a log of TORCH_TRACE: entries, each with a JSON object and perhaps a payload.

    V0521 11:53:23.626000 3076301 torch/_inductor/graph.py:2347] {"artifact": {"name": ...}, "has_payload": "6879.."}
        payload, each line after a tab

The number after the time is the process. `has_payload` is the MD5 of the payload. Other programs may write lines into
the same file. A payload ends with the next entry.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from opspan.errors import TooLarge
from opspan.formats.budget import Limit, Meter
from opspan.formats.compressed import FAILURES, opened
from opspan.tables import Issues

_HEAD = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{6} (\d{1,10}) [^\n]{1,4096}?:\d{1,9}\] (?=\{)")
_HEAD_BYTES = 4_300
LINE = Limit("bytes are in one line of a log", always=64 << 20)
PAYLOAD = Limit("bytes are in one entry of a log", always=256 << 20)


class Entry(NamedTuple):
    pid: int
    values: dict[str, Any]
    payload: str | None  # None: it has none, or is not wanted
    time_ns: int | None = None  # on the clock of the trace, if that is known


def is_log(head: bytes) -> bool:
    """Returns whether one of the first lines of a file is an entry."""
    return any(_HEAD.match(line) for line in head.split(b"\n"))


def entries(path: Path, head: bytes, wanted: Callable[[dict[str, Any]], bool], issues: Issues) -> Iterator[Entry]:
    """Yields the entries. Only those that are `wanted` have their payload, whose size is limited."""
    reader = _Reader(wanted, issues)
    is_cut = False
    with opened(path, head) as raw:
        for line in _lines(raw, issues):
            is_cut = not line.endswith(b"\n")
            yield from reader.line(line)
    yield from reader.end(is_cut=is_cut)


class _Reader:
    def __init__(self, wanted: Callable[[dict[str, Any]], bool], issues: Issues) -> None:
        self._wanted = wanted
        self._issues = issues
        self._pid = 0
        self._values: dict[str, Any] | None = None
        self._parts: list[bytes] | None = None
        self._meter = Meter(PAYLOAD, 0, issues)

    def line(self, line: bytes) -> Iterator[Entry]:
        if line.startswith(b"\t"):
            if self._parts is not None:
                if self._meter.take(len(line)):
                    self._parts.append(line[1:])
                else:
                    self._parts = self._values = None
            return
        head = _HEAD.match(line[:_HEAD_BYTES])
        if head is None:
            self._issues.add("foreign_lines", 1 if line.strip() else 0)
            return
        yield from self.end()
        try:
            values = json.loads(line[head.end() :])
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            self._issues.add("damaged_log", detail="no JSON")
            return
        self._pid, self._values = int(head[1]), values
        if "has_payload" in values and self._wanted(values):
            self._parts, self._meter = [], Meter(PAYLOAD, 0, self._issues)

    def end(self, is_cut: bool = False) -> Iterator[Entry]:
        """Ends the entry that was begun, and yields it."""
        values, parts = self._values, self._parts
        self._values = self._parts = None
        if values is None:
            return
        payload = None
        if parts is not None:
            raw = b"".join(parts).removesuffix(b"\n")
            digest = hashlib.md5(raw, usedforsecurity=False).hexdigest()
            if digest != values["has_payload"]:
                self._issues.add("truncated_file" if is_cut else "damaged_log", detail="" if is_cut else "wrong MD5")
            payload = raw.decode("utf-8", "replace")
        yield Entry(self._pid, values, payload)


def _lines(raw: io.RawIOBase, issues: Issues) -> Iterator[bytes]:
    """Yields the lines. A line that is too long is left out."""
    stream = io.BufferedReader(raw, 1 << 20)
    most = LINE.allows()
    is_rest = False  # whether what comes next is the rest of a line that was too long
    while True:
        try:
            line = stream.readline(most)
        except TooLarge:
            issues.add("over_budget", detail="unpacked bytes")
            return
        except FAILURES:
            issues.add("truncated_file")
            return
        if not line:
            return
        is_whole = line.endswith(b"\n") or len(line) < most
        if is_whole and not is_rest:
            yield line
        elif not is_rest:
            issues.add("over_budget", detail=LINE.message())
        is_rest = not is_whole
