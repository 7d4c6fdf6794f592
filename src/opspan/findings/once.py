"""Looks once in a run for what several rules ask, in whichever threads these are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """once(key, find) -> what `find` finds; the second thread that asks waits for what the first has begun."""

    def __init__(self) -> None:
        self._found: dict[str, list[Any]] = {}
        self._locks: dict[str, Any] = {}

    def __call__(self, key: str, find: Callable[[], Iterable[T]]) -> list[T]:
        with self._locks.setdefault(key, RLock()):
            if key not in self._found:
                self._found[key] = list(find())
            return self._found[key]
