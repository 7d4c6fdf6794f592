"""Says how many micro-operations a core of the processor can issue in a cycle, if a trace names the microarchitecture.

    width(ranks) -> the number, or None if it is not known, or if the ranks ran on different processors.

VTune names the microarchitecture, such as broadwell_server. Its reader puts this name into `options` of the trace's
metadata. The widths are those that Intel publishes. Processors with two kinds of cores (Alder Lake, Meteor Lake) have
two widths, so they are not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opspan.tables.metadata import MICROARCHITECTURE

if TYPE_CHECKING:
    from opspan.tables import Metadata

_NAMES = {
    4: "sandybridge ivybridge haswell broadwell skylake kabylake coffeelake cometlake cascadelake",
    5: "icelake tigerlake rocketlake",
    6: "sapphirerapids emeraldrapids",
}
_WIDTHS = {name: width for width, names in _NAMES.items() for name in names.split()}


def width(ranks: Iterable[Metadata]) -> int | None:
    widths = {_width_of(name) for rank in ranks for name in _named(rank.options)}
    return widths.pop() if len(widths) == 1 else None


def _named(options: Mapping[str, Any]) -> Iterator[object]:
    """Yields the names in the options. A trace that was merged has the options of each of its traces."""
    if MICROARCHITECTURE in options:
        yield options[MICROARCHITECTURE]
    merged = options.get("merged")
    for side in merged if isinstance(merged, list | tuple) else ():
        inner = side.get("options") if isinstance(side, Mapping) else None
        if isinstance(inner, Mapping):
            yield from _named(inner)


def _width_of(name: object) -> int | None:
    letters = re.sub(r"[^a-z]", "", str(name).lower())
    return _WIDTHS.get(letters.removesuffix("server"))
