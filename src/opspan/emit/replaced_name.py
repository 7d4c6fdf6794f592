"""Replaces the value of a name in a module during sessions. torch looks the name up each time that it uses the
value."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any


class ReplacedName:
    """Gives the name our value. Our value calls `before`, which is the value that the name had until then.

    The program may also replace the value, by one that calls ours. Then `stop` leaves the program's value in place. The
    next `start` leaves it in place, too, because our value would otherwise call itself through `before`.
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
