"""A range for every nn.Module call: `MLP.layers.0`, and its class. No model is changed, and no exception gets out.

What is here serves every session that asked for modules, and who watches them. Where torch.compile traces a model it
does nothing, so there is no graph break and nothing is left of it in the compiled code: a compiled model shows as one
range, the outermost, and what runs eagerly around it shows as usual.

Sessions start and end inside `changes.change`, which is the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from opspan.emit import module_calls, notices, ranges, unharmed
from opspan.emit.module_names import Names


class Watcher(Protocol):
    """Is told of calls on the thread that makes them; `depth` counts those around."""

    def entered(self, name: str, depth: int, inputs: object) -> int | None: ...
    def returned(self, name: str, outputs: object) -> None: ...
    def left(self, entered: int) -> None: ...


class _Frame:
    """A call that has begun."""

    __slots__ = ("module", "to", "watched")

    module: Any
    to: int  # the sinks it was pushed to, 0 when it reached nobody
    watched: tuple[Watcher, str, int] | None  # by whom, its name, and what `entered` answered


_DOING: Final = "labelling modules"
_UNKNOWN: Final = (
    "modules get no labels: this torch calls them in another way than this opspan knows; pip install -U opspan"
)

_local = threading.local()
_is_compiling: Callable[[], bool]  # torch's: also true in what the compiler itself runs to make code
_names: Names
_to = 0  # the sinks that asked for modules
_watcher: Watcher | None = None


def start(to: int) -> None:
    """Modules to this sink too."""
    global _to
    if _start():
        _to |= to


def stop(to: int) -> None:
    """No more modules to this sink."""
    global _to
    _to &= ~to
    _stop()


def watch(watcher: Watcher) -> None:
    """Tell it of modules too. One at a time."""
    global _watcher
    if _start():
        _watcher = watcher


def unwatch() -> None:
    """Tell it only of the ends of calls that it was told of."""
    global _watcher
    _watcher = None
    _stop()


def _start() -> bool:
    global _names, _is_compiling
    if _to or _watcher is not None:
        return True
    from torch.compiler import is_compiling as _is_compiling

    _names = Names()
    if is_known := module_calls.start(_enter, _leave):
        return True
    notices.warn(_UNKNOWN, stacklevel=6)
    return is_known


def _stop() -> None:
    if _to or _watcher is not None:
        return
    module_calls.stop()
    _unwind(_stack(), 0)  # on other threads what has begun ends when it ends


def _enter(module: Any, inputs: object) -> _Frame | None:
    frame = None
    try:
        if _is_compiling() or not (_to or _watcher):  # none: a call began as the last session ended
            return None
        stack = _stack()
        ref, name = _names.get(module) or _names.learn(module, stack[0].module if stack else None)
        opened = _Frame()
        opened.module, opened.to, opened.watched = module, 0, None
        stack.append(opened)
        frame = opened
        if ranges.push(ref, _to) >= 0:
            frame.to = _to
        if (watcher := _watcher) is not None:
            entered = watcher.entered(name, len(stack) - 1, inputs)
            if entered is not None:
                frame.watched = watcher, name, entered
    except Exception as error:  # noqa: BLE001  # the program has done nothing wrong
        try:
            unharmed.keep(_DOING, error)
        except Exception:  # noqa: BLE001  # no room even for that
            unharmed.too_deep += 1
    return frame


def _leave(frame: _Frame, outputs: object) -> None:
    try:
        stack = _stack()
        depth = len(stack) - 1
        # Normally the top. What is above it has ended without saying so, as a greenlet that was switched away from.
        while depth >= 0 and stack[depth] is not frame:
            depth -= 1
        if depth < 0:  # its session ended inside the call
            return
        if frame.watched is not None:
            frame.watched[0].returned(frame.watched[1], outputs)
        _unwind(stack, depth)
    except Exception as error:  # noqa: BLE001  # the program has done nothing wrong
        try:
            unharmed.keep(_DOING, error)
        except Exception:  # noqa: BLE001  # no room even for that
            unharmed.too_deep += 1


def _unwind(stack: list[_Frame], depth: int) -> None:
    while len(stack) > depth:
        frame = stack.pop()
        if frame.to:
            ranges.pop(frame.to)
        if frame.watched is not None:
            frame.watched[0].left(frame.watched[2])


def _stack() -> list[_Frame]:
    try:
        stack: list[_Frame] = _local.stack
    except AttributeError:
        stack = _local.stack = []
    return stack
