"""Turns each cycle of a process into a lane (a separate rank) for the analysis, and lanes back into ranks for answers.
A cycle is one of several files that a process wrote one after another (tables/cycles.py).

in_lanes(parts) -> a function that computes the parts of an answer (parts.py) for each cycle, and merges these parts.
as_ranks(parts, lanes) -> the parts, with ranks instead of lanes. Rows of several lanes of one rank are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING

from opspan.analysis.parts import COLLECTIVES, Parts, move, together
from opspan.tables.cycles import Lane, with_cycles

if TYPE_CHECKING:
    from typing import Concatenate

    from typing_extensions import ParamSpec

    from opspan.analysis.analysed import Analysis

    P = ParamSpec("P")


def in_lanes(parts: Callable[Concatenate[Analysis, P], Parts]) -> Callable[Concatenate[Analysis, P], Parts]:
    """Decorates a function that computes the parts of an answer, so that the function treats each cycle separately.
    Without cycles, nothing changes."""

    @wraps(parts)
    def parts_of_ranks(analysis: Analysis, /, *args: P.args, **kwargs: P.kwargs) -> Parts:
        if analysis.lanes is None:
            return parts(analysis, *args, **kwargs)
        return as_ranks(parts(analysis.by_lane, *args, **kwargs), analysis.lanes.of)

    return parts_of_ranks


def as_ranks(parts: Parts, lanes: Mapping[int, Lane]) -> Parts:
    ranks = {number: lane.rank for number, lane in lanes.items()}
    cycles = {number: lane.cycle for number, lane in lanes.items()}
    if len(set(ranks.values())) == len(ranks):
        return {name: move(part, ranks) for name, part in parts.items()}
    answer = {}
    for name, part in parts.items():
        if name == COLLECTIVES:
            part = replace(part, rows=with_cycles(part.rows, cycles))
        answer[name] = together([move(part, ranks)], again=True)
    return answer
