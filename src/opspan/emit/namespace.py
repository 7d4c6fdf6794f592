"""What `opspan.nvtx` and `opspan.itt` share: pushes and pops to one kind of tool, with depths as torch promises."""

from __future__ import annotations

import threading

from opspan.emit import ranges


class Namespace:
    """Push, pop and mark for one bit of TO_NVTX, TO_ITT.

    The stack kept here remembers which pushes reached a tool: a pop must undo its own push, also when a session
    started or ended in between. It also gives a depth while nobody listens.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self._local = threading.local()

    def push(self, message: str) -> int:
        stack = self._stack()
        depth = ranges.push(ranges.ref_of(message), self.to)
        stack.append(depth >= 0)
        return depth if depth >= 0 else len(stack) - 1

    def pop(self) -> int:
        stack = self._stack()
        if not stack:
            return -1
        if stack.pop():
            return ranges.pop(self.to)
        return len(stack)

    def mark(self, message: str) -> None:
        ranges.mark(ranges.ref_of(message), self.to)

    def _stack(self) -> list[bool]:
        try:
            stack: list[bool] = self._local.stack
        except AttributeError:
            stack = self._local.stack = []
        return stack
