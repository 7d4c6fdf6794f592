"""Metadata says where one rank of a trace came from, and how it was captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opspan.printable import as_utf8
from opspan.tables.told import NOTHING, Told

ORDER, NAME = "order", "name"  # values of `rank_by`, if the trace does not state its rank


@dataclass(frozen=True)
class Metadata:
    """The origin of one rank of a trace: one file, or one folder of files that belong together.

    Attributes:
        source: name of the reader.
        paths: the files.
        tool: the tool that recorded the trace.
        tool_version: the tool's version.
        host: the machine that the program ran on.
        clock: the clock that times were read from.
        origin_utc_ns: UTC time, since 1970, of the clock's zero.
        options: how the trace was captured; JSON values only.
        rank: its number in the column `rank` of all tables.
        rank_by: how that number was found (docs/ranks.md).
        told: the rank that the trace itself states.
        cycle: number of the cycle, from 1, if the process wrote several files.
        cycles: one Metadata for each cycle, if the rank has several files.
    """

    source: str
    paths: tuple[str, ...] = ()
    tool: str | None = None
    tool_version: str | None = None
    host: str | None = None
    clock: str | None = None
    origin_utc_ns: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0
    rank_by: str = ORDER
    told: Told = NOTHING
    cycle: int | None = None
    cycles: tuple[Metadata, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(as_utf8, self.paths)))
