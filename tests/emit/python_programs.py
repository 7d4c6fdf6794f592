"""Programs that call functions in every way, and a twin that sees their calls by sys.setprofile. Other releases of
Python run this file too, so it needs neither torch nor opspan."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def boom() -> None:
    raise ValueError


def generate() -> Iterator[int]:
    try:
        yield 1
        yield len("ab")
    finally:
        max(1, 2)


def recurse(depth: int) -> int:
    return recurse(depth - 1) + 1 if depth else 0


class Counter:
    def __init__(self) -> None:
        self.count = 0

    @property
    def next(self) -> int:
        self.count += 1
        return self.count

    def __call__(self, *values: int) -> int:
        return sum(values)


def loops() -> None:
    for value in generate():
        sorted([value, 1, 2], key=lambda number: -number)
    [part * 2 for part in "a b".split()]
    {"a": 1}.update(b=2)


def fails() -> None:
    with contextlib.suppress(ValueError):
        boom()
    with contextlib.suppress(ValueError):
        int("no number")


def yields_early() -> None:
    left = generate()
    next(left)
    left.close()
    thrown = generate()
    next(thrown)
    with contextlib.suppress(KeyError):
        thrown.throw(KeyError)


def classes() -> None:
    counter = Counter()
    counter(counter.next, counter.next)
    recurse(50)


def all_of_them() -> None:
    loops()
    fails()
    yields_early()
    classes()


def by_hand(program: Callable[[], None], left_out: str) -> list[tuple[int, str]]:
    """Returns the depth and the name of each call, as Python's own hook for profilers sees it.
    Functions in files whose names begin with `left_out` are left out."""
    calls: list[tuple[int, str]] = []
    open_frames: list[tuple[FrameType, bool]] = []

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        is_c = event.startswith("c_")
        if event in ("call", "c_call"):
            if frame.f_code.co_filename.startswith(left_out):
                return  # opspan leaves out its own functions, and what they call
            name = argument.__name__ if is_c else frame.f_code.co_name
            calls.append((len(open_frames), name))
            open_frames.append((frame, is_c))
        elif open_frames and open_frames[-1] == (frame, is_c):
            open_frames.pop()

    sys.setprofile(hook)
    try:
        program()
    finally:
        sys.setprofile(None)
    return [call for call in calls if call[1] != "setprofile"]
