"""Reads torch.compile's log from the marks that sessions with `compiled=True` sent (emit.compile_log).

    torch.compile log 7 1/3 eNqrVkrLz1eyUkpKLFKqBQ...     piece 1 of 3 of entry 7: base64 of zlib of JSON
        {"values": {"artifact": {"name": ...}, "frame_id": 0, ...}, "payload": "..."}

A trace may have an entry several times, because each new session also sends the entries from before the session. The
marks of these entries have the word `earlier` before the data. The time of such a mark is not the time of its entry.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

import polars as pl

from opspan.formats.budget import Limit, Meter
from opspan.readers.compile_logs.lines import Entry
from opspan.tables import Issues

_PIECE = r"^torch\.compile log (\d{1,9}) (\d{1,6})/(\d{1,6}) (earlier )?([A-Za-z0-9+/=]{1,4096})$"
_UNPACKED = Limit("bytes of torch.compile's log are in the marks, unpacked", always=1 << 30)
_MOST_OF_AN_ENTRY = 256 << 20  # limit on the unpacked bytes of an entry
_col = pl.col


def pieces_of(marks: pl.DataFrame) -> pl.DataFrame:
    """Returns the marks that are pieces of a log, with the columns id, rank, pid, time_ns (null if the mark says
    `earlier`), entry (its number), piece (its number), pieces (how many the entry has) and packed (text in base64)."""
    text = _col("name").cast(pl.String)
    groups = text.str.extract_groups(_PIECE)
    rows = marks.select("id", "rank", "pid", time_ns="start_ns", groups=groups).unnest("groups")
    rows = rows.rename({"1": "entry", "2": "piece", "3": "pieces", "5": "packed"}).drop_nulls("packed")
    rows = rows.with_columns(time_ns=pl.when(_col("4").is_null()).then("time_ns")).drop("4")
    return rows.with_columns(_col("entry", "piece", "pieces").cast(pl.Int64))


def entries_of(pieces: pl.DataFrame, issues: Issues) -> Iterator[Entry]:
    """Yields the entries of one process after the other. Keeps the order in which torch wrote a process's entries."""
    meter = Meter(_UNPACKED, 0, issues)
    rows = pieces.sort("entry", "piece", "time_ns", nulls_last=True)
    rows = rows.unique(["pid", "entry", "piece"], keep="first", maintain_order=True)
    for (pid,), of_process in rows.group_by("pid", maintain_order=True):
        for _, one in of_process.group_by("entry", maintain_order=True):
            values = _unpacked(one, meter)
            if values is None:
                issues.add("damaged_log", detail="a mark is missing or damaged")
                continue
            own, payload = values["values"], values.get("payload")
            if not isinstance(payload, str):
                payload = None
            else:
                # TORCH_TRACE's logs have this MD5 too. Without it, two graph breaks of one compilation would be equal.
                own["has_payload"] = hashlib.md5(payload.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
            yield Entry(int(pid or 0), own, payload, one["time_ns"][0])


def _unpacked(pieces: pl.DataFrame, meter: Meter) -> dict[str, Any] | None:
    """Returns the entry, or None if pieces are missing or damaged."""
    if pieces["piece"].to_list() != list(range(1, pieces["pieces"][0] + 1)):
        return None
    try:
        packed = base64.b64decode("".join(pieces["packed"]), validate=True)
        raw = zlib.decompressobj().decompress(packed, _MOST_OF_AN_ENTRY)
        if not meter.take(len(raw)):
            return None
        values = json.loads(raw)
    except (ValueError, zlib.error, RecursionError):
        return None
    return values if isinstance(values, dict) and isinstance(values.get("values"), dict) else None
