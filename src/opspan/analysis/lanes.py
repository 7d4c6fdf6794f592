"""Cycles of a process as ranks of their own while they are analysed, and the ranks that they are of in what comes out.

in_lanes(parts)          -> the parts of an answer, of cycles put together as those of files are
as_ranks(parts, lanes)   -> parts with the ranks of the lanes, what is of one rank as one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING

from opspan.analysis.parts import COLLECTIVES, Parts, moved, together
from opspan.tables.cycles import Lane, with_cycles

if TYPE_CHECKING:
    from typing import Concatenate

    from typing_extensions import ParamSpec

    from opspan.analysis.analysed import Analysis

    P = ParamSpec("P")


def in_lanes(parts: Callable[Concatenate[Analysis, P], Parts]) -> Callable[Concatenate[Analysis, P], Parts]:
    """Decorates `parts` of an answer: without cycles they are what it gives."""

    @wraps(parts)
    def each(found: Analysis, /, *args: P.args, **kwargs: P.kwargs) -> Parts:
        if found.lanes is None:
            return parts(found, *args, **kwargs)
        return as_ranks(parts(found.by_lane, *args, **kwargs), found.lanes.of)

    return each


def as_ranks(parts: Parts, lanes: Mapping[int, Lane]) -> Parts:
    ranks = {number: lane.rank for number, lane in lanes.items()}
    cycles = {number: lane.cycle for number, lane in lanes.items()}
    if len(set(ranks.values())) == len(ranks):
        return {name: moved(part, ranks) for name, part in parts.items()}
    found = {}
    for name, part in parts.items():
        if name == COLLECTIVES:
            part = replace(part, rows=with_cycles(part.rows, cycles))
        found[name] = together([moved(part, ranks)], again=True)
    return found
