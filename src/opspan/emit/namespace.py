"""The common part of `opspan.nvtx` and `opspan.itt`, which push and pop ranges for one kind of tool. `push` and `pop`
return depths, as in torch.cuda.nvtx."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from opspan.emit import ranges
from opspan.emit.compiled import compiling, of_torch, torchs_range

P = ParamSpec("P")
R = TypeVar("R")


class Namespace:
    """Pushes and pops ranges, and sets marks, for one sink.

    A stack remembers which pushes reached a tool, because a pop must undo its own push, even if a session started or
    ended in between. The stack also counts depths while nobody listens.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self._local = threading.local()

    def push(self, message: str) -> int:
        if compiling():
            return -1
        text = ranges.text_of(message)
        stack = self._stack()
        depth = ranges.push(ranges.ref_of(text), self.to) if ranges.listening() & self.to else -1
        stack.append(depth >= 0)
        return depth if depth >= 0 else len(stack) - 1

    def pop(self) -> int:
        if compiling():
            return -1
        stack = self._stack()
        if not stack:
            return -1
        if stack.pop():
            return ranges.pop(self.to)
        return len(stack)

    def start(self, message: str) -> int:
        if compiling():
            return 0
        text = ranges.text_of(message)
        return ranges.range_start(ranges.ref_of(text), self.to) if ranges.listening() & self.to else 0

    def end(self, range_id: int) -> None:
        if not compiling():
            ranges.range_end(range_id)

    def mark(self, message: str) -> None:
        if compiling():
            return
        text = ranges.text_of(message)
        if ranges.listening() & self.to:
            ranges.mark(ranges.ref_of(text), self.to)

    def range(self, message: str, *args: object, **kwargs: object) -> Range:
        """Returns a range for a `with` block or a function. With further arguments, the range's name is
        `message.format(*args, **kwargs)`."""
        if compiling():
            return cast(Range, torchs_range(message))
        text = ranges.text_of(message)
        return of_torch(Range)(self, text.format(*args, **kwargs) if args or kwargs else text)

    def _stack(self) -> list[bool]:
        try:
            stack: list[bool] = self._local.stack
        except AttributeError:
            stack = self._local.stack = []
        return stack


class Range:
    """A push and its pop. It has no state, so threads can share it."""

    __slots__ = ("_namespace", "args", "name")

    def __init__(self, namespace: Namespace, name: str) -> None:
        self._namespace = namespace
        self.name = name
        self.args = None

    def __enter__(self) -> None:
        self._namespace.push(self.name)

    def __exit__(self, *_: object) -> None:
        self._namespace.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            if compiling():
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return inside
