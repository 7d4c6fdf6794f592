"""Makes a range for every nn.Module call, with a name such as `MLP.layers.0`, and the module's class. Models stay
unchanged, and no exception reaches the program.

The hooks `_enter` and `_leave` serve all sessions that want modules, and one watcher (emit_pyroscope). While
torch.compile traces a model, the hooks do nothing. So there is no graph break, and compiled code does not contain the
hooks. A compiled model has one range, for its outermost module. Modules that run eagerly around it have ranges as
usual.

All changes here happen while a session starts or ends, under the lock of `changes.change`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from opspan.emit import compiled, module_calls, module_names, notices, ranges, unharmed
from opspan.emit.module_names import Names


class Watcher(Protocol):
    """Is told of each module call, on the calling thread. `depth` is the number of module calls around this one."""

    def on_enter(self, name: str, depth: int, inputs: object) -> int | None: ...
    def on_return(self, name: str, outputs: object) -> None: ...
    def on_leave(self, entered: int) -> None: ...


class _Frame:
    """A call in progress."""

    __slots__ = ("module", "to", "watched")

    module: Any
    to: int  # the sinks that got the call's range, as bits. 0 if nobody listened
    watched: tuple[Watcher, str, int] | None  # the watcher, the module's name, and the result of `on_enter`


_DOING: Final = "labelling modules"
_UNKNOWN: Final = (
    "modules get no labels: this torch calls them in another way than this opspan knows; pip install -U opspan"
)

_local = threading.local()
_is_compiling: Callable[[], bool]  # torch.compiler.is_compiling. Also returns True in code that the compiler runs
_names: Names
_to = 0  # the sinks that get modules, as bits
_watcher: Watcher | None = None


def start(to: int) -> None:
    """Adds a sink that gets modules."""
    global _to
    if _start():
        _to |= to


def stop(to: int) -> None:
    global _to
    _to &= ~to
    _stop()


def watch(watcher: Watcher) -> None:
    """Sets the watcher. There is only one."""
    global _watcher
    if _start():
        _watcher = watcher


def unwatch() -> None:
    """Removes the watcher, which is still told of the ends of the calls that it saw begin."""
    global _watcher
    _watcher = None
    _stop()


def _start() -> bool:
    global _names, _is_compiling
    if _to or _watcher is not None:
        return True
    from torch.compiler import is_compiling as _is_compiling

    _names = Names()
    compiled.skip_functions_of(sys.modules[__name__], module_names)
    if not (is_known := module_calls.start(_enter, _leave)):
        notices.warn(_UNKNOWN, stacklevel=6)
    return is_known


def _stop() -> None:
    if _to or _watcher is not None:
        return
    module_calls.stop()
    _unwind(_stack(), 0)  # other threads end the ranges of their calls when the calls return


def _enter(module: Any, inputs: object) -> _Frame | None:
    frame = None
    try:
        if _is_compiling() or not (_to or _watcher):  # second case: the last session ended after this call began
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
            entered = watcher.on_enter(name, len(stack) - 1, inputs)
            if entered is not None:
                frame.watched = watcher, name, entered
    except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
        try:
            unharmed.keep(_DOING, error)
        except Exception:  # noqa: BLE001  # the stack has no room even for that
            unharmed.too_deep += 1
    return frame


def _leave(frame: _Frame, outputs: object) -> None:
    try:
        stack = _stack()
        depth = len(stack) - 1
        # The frame is usually on top of the stack. Frames above it have not ended, for instance if a greenlet was
        # switched away from inside a call.
        while depth >= 0 and stack[depth] is not frame:
            depth -= 1
        if depth < 0:  # the session ended inside the call
            return
        if frame.watched is not None:
            frame.watched[0].on_return(frame.watched[1], outputs)
        _unwind(stack, depth)
    except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
        try:
            unharmed.keep(_DOING, error)
        except Exception:  # noqa: BLE001  # the stack has no room even for that
            unharmed.too_deep += 1


def _unwind(stack: list[_Frame], depth: int) -> None:
    while len(stack) > depth:
        frame = stack.pop()
        if frame.to:
            ranges.pop(frame.to)
        if frame.watched is not None:
            frame.watched[0].on_leave(frame.watched[2])


def _stack() -> list[_Frame]:
    try:
        stack: list[_Frame] = _local.stack
    except AttributeError:
        stack = _local.stack = []
    return stack
