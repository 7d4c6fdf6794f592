"""Reads the modules that the nodes of graphs come from. Only sessions with `compiled=True` write entries about them:

    {"graph": "before", "roots": {"self": "MLP"}, "nodes": {"linear": "L['self'].layers.0", ...}}

`graph` is "before" (autograd) or "compiled". `nodes` has the path of each node's module. A path begins with the
variable that holds the outermost module, and `roots` has the class of this module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MODULES = "opspan_modules"
_VARIABLE = re.compile(r"^[LG]\['(\w{1,200})'\]\.?(.*)$")
_CHILD = re.compile(r"\._modules\['([^']{1,200})'\]")  # torch 2.9 writes children of containers like this
_LONGEST = 1_000  # limit on the characters of a path


@dataclass
class Modules:
    """The modules of a compilation. `paths`: node of the graph before autograd -> path. `roots`: variable -> class."""

    roots: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def name_of(self, path: str) -> str | None:
        """Returns the module's name in the form that ranges of modules have: MLP.layers.0."""
        path = _CHILD.sub(r".\1", path[:_LONGEST])
        match = _VARIABLE.match(path)
        if match is None:
            return path or None
        return ".".join(filter(None, (self.roots.get(match[1]), match[2]))) or None


def texts_of(values: object) -> dict[str, str]:
    """Returns the members of a JSON object. Leaves out values that are not texts."""
    if not isinstance(values, dict):
        raise ValueError(str(values)[:80])
    return {name: text for name, text in values.items() if isinstance(text, str)}
