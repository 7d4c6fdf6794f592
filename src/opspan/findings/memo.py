"""Keeps results that several rules of a run use, so that they are computed only once, also in parallel threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """memo(key, compute) -> the results of `compute`, which runs once per key; a second thread waits for the first."""

    def __init__(self) -> None:
        self._results: dict[str, list[Any]] = {}
        self._locks: dict[str, Any] = {}

    def __call__(self, key: str, compute: Callable[[], Iterable[T]]) -> list[T]:
        with self._locks.setdefault(key, RLock()):
            if key not in self._results:
                self._results[key] = list(compute())
            return self._results[key]
