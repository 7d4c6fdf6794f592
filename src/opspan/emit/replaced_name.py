"""Gives a name of a module our value while sessions use it. torch looks such names up each time that it needs them."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any


class ReplacedName:
    """Our value calls `before`, the value that the name had.

    A program may replace the name as well, with a value that calls ours. So the name is restored only if it still has
    our value. Otherwise it stays as it is until it has its old value again: our value must not call itself.
    """

    def __init__(self, module: str, name: str, ours: Any) -> None:
        self._module = module
        self._name = name
        self._ours = ours
        self._lock = threading.Lock()
        self._is_replaced = False
        self.before: Any = None
        self.users = 0  # how many sessions use our value now

    def start(self) -> None:
        module = import_module(self._module)
        with self._lock:
            self.users += 1
            value = getattr(module, self._name)
            if not self._is_replaced or value is self.before:
                self.before = value
                setattr(module, self._name, self._ours)
                self._is_replaced = True

    def stop(self) -> None:
        module = import_module(self._module)
        with self._lock:
            self.users -= 1
            if not self.users and getattr(module, self._name) is self._ours:
                setattr(module, self._name, self.before)
                self._is_replaced = False
