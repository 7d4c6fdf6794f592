"""Public names that live in other modules. Each is imported when it is first used, so that the module costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def finder(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module. `homes`: name -> "module:attribute", or "module" for a module itself."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, attribute = homes[name].partition(":")
        source = import_module(home)
        value = getattr(source, attribute) if attribute else source
        setattr(sys.modules[module], name, value)  # later uses of the name do not call this function
        return value

    return find
