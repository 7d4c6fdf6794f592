"""Lets a module offer names that other modules define. A name is imported when it is first used, so that importing the
module itself is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def finder(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` for a module. `homes` maps each name to "module:attribute", or to "module" if the name
    stands for a module itself."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, attribute = homes[name].partition(":")
        source = import_module(home)
        value = getattr(source, attribute) if attribute else source
        setattr(sys.modules[module], name, value)  # so that later uses of the name skip this function
        return value

    return find
