"""Reads which modules the nodes of graphs come from. Only sessions with `compiled=True` write that down.

    {"graph": "before", "roots": {"self": "MLP"}, "nodes": {"linear": "L['self'].layers.0", ...}}

`graph` is "before" (autograd) or "compiled". A path begins with the variable that has the outermost module; `roots` has
the classes of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MODULES = "opspan_modules"
_VARIABLE = re.compile(r"^[LG]\['(\w{1,200})'\]\.?(.*)$")
_CHILD = re.compile(r"\._modules\['([^']{1,200})'\]")  # as torch 2.9 writes children of containers
_LONGEST = 1_000  # characters of a path


@dataclass
class Modules:
    """The modules of a compilation: the paths of nodes of the graph before autograd, and classes of variables."""

    roots: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def name_of(self, path: str) -> str | None:
        """Returns the module's name as ranges of modules have it: MLP.layers.0."""
        path = _CHILD.sub(r".\1", path[:_LONGEST])
        match = _VARIABLE.match(path)
        if match is None:
            return path or None
        return ".".join(filter(None, (self.roots.get(match[1]), match[2]))) or None


def texts_of(values: object) -> dict[str, str]:
    """Returns the entries of an object whose values are texts."""
    if not isinstance(values, dict):
        raise ValueError(str(values)[:80])
    return {name: text for name, text in values.items() if isinstance(text, str)}
