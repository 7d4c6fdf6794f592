"""Metadata: where one rank of a trace came from, and how it was captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opspan.printable import as_utf8
from opspan.tables.told import NOTHING, Told

ORDER, NAME = "order", "name"  # what says a rank, where the trace does not


@dataclass(frozen=True)
class Metadata:
    """Where one rank of a trace came from: one file, or one folder of files that belong together."""

    source: str  # name of the reader
    paths: tuple[str, ...] = ()
    tool: str | None = None
    tool_version: str | None = None
    host: str | None = None
    clock: str | None = None  # what the times are readings of
    origin_utc_ns: int | None = None  # UTC time, since 1970, of the clock's zero
    options: Mapping[str, Any] = field(default_factory=dict)  # how it was captured: JSON values only
    rank: int = 0  # its number in the column `rank` of all tables
    rank_by: str = ORDER  # what says that number: docs/ranks.md
    told: Told = NOTHING  # what the trace itself says of its rank
    cycle: int | None = None  # of its rank, from 1, where its process wrote several files
    cycles: tuple[Metadata, ...] = ()  # of a rank that is several files: each of them

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(as_utf8, self.paths)))
