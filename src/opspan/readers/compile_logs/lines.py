"""Reads a log of TORCH_TRACE. Each entry has a JSON object, and may have a payload, which is text.

    V0521 11:53:23.626000 3076301 torch/_inductor/graph.py:2347] {"artifact": {"name": ...}, "has_payload": "6879.."}
        first line of the payload, after a tab

The number after the time is the process id. `has_payload` is the MD5 of the payload. A payload ends where the next
entry begins. Other programs may write lines into the same file.
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
    payload: str | None  # None if the entry has no payload, or if the payload was not requested
    time_ns: int | None = None  # on the trace's clock; None if unknown


def is_log(head: bytes) -> bool:
    """Returns whether one of the first lines of a file is an entry."""
    return any(_HEAD.match(line) for line in head.split(b"\n"))


def entries(path: Path, head: bytes, wanted: Callable[[dict[str, Any]], bool], issues: Issues) -> Iterator[Entry]:
    """Yields the entries of a log. Reads an entry's payload only if `wanted` returns True for the entry's JSON. Drops
    an entry whose payload is too large."""
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
        """Yields the current entry, which is now complete. `is_cut`: the file ended in the middle of a line."""
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
    """Yields the lines. Leaves out lines that are too long."""
    stream = io.BufferedReader(raw, 1 << 20)
    most = LINE.allows()
    is_rest = False  # True if the next bytes are the rest of a line that is too long
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
