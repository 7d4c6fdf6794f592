"""A range for every nn.Module call: `MLP.layers.0`, and its class. Only forward hooks; no model is changed.

One pair of global hooks serves every session that asked for modules, and who watches them. Under torch.compile the
hooks do nothing while a model is traced, so there is no graph break and nothing is left of them in the compiled code: a
compiled model shows as one range, the outermost, and what runs eagerly around it shows as usual.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from opspan.emit import ranges
from opspan.emit.sinks import KIND_MODULE

if TYPE_CHECKING:
    from torch.nn import Module

V = TypeVar("V")

# A model that makes new modules in every forward would have its names looked up for ever.
_MAX_LOOKUPS = 8
_HOOK_IDS = 0x6F70_7370_616E_0000  # far from torch's own, which count from 0


class Watcher(Protocol):
    """Is told of calls on the thread that makes them; `depth` counts those around."""

    def entered(self, name: str, depth: int, inputs: object) -> int | None: ...
    def returned(self, name: str, outputs: object) -> None: ...
    def left(self, entered: int) -> None: ...


@dataclass
class _Frame:
    module: weakref.ref[Module]
    to: int  # the sinks it was pushed to, 0 when it reached nobody
    hooks: int  # which installation of the hooks pushed it
    watched: tuple[Watcher, str, int] | None = None  # by whom, its name, and what `entered` answered


class _ByModule(Generic[V]):
    """A value for each module that lives. By identity: a module may have `__eq__`, and then often no `__hash__`."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Module], V]] = {}

    def get(self, module: Module) -> V | None:
        entry = self._entries.get(id(module))
        return entry[1] if entry is not None and entry[0]() is module else None

    def set(self, module: Module, value: V) -> None:
        entries, number = self._entries, id(module)

        def forget(gone: weakref.ref[Module]) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is gone:
                del entries[number]

        entries[number] = (weakref.ref(module, forget), value)


class _Names:
    """Qualified names, from the outermost module that was seen to contain one."""

    def __init__(self) -> None:
        self._refs: _ByModule[Any] = _ByModule()
        self._lookups: _ByModule[int] = _ByModule()
        self._lock = threading.Lock()

    def ref(self, module: Module, outermost: Module | None) -> Any:
        """The range of a module. `outermost` is the one whose call this call is inside, on this thread."""
        found = self._refs.get(module)
        if found is not None:
            return found
        with self._lock:
            lookups = (self._lookups.get(outermost) or 0) if outermost is not None else _MAX_LOOKUPS
            if outermost is not None and lookups < _MAX_LOOKUPS:
                self._lookups.set(outermost, lookups + 1)
                self._learn(outermost)
            if self._refs.get(module) is None:  # not a part of it: the outermost of its own
                self._learn(module)
            return self._refs.get(module)

    def _learn(self, root: Module) -> None:
        for path, module in _parts(root, (_class_of(getattr(root, "_orig_mod", root)),), set()):
            self._refs.set(module, ranges.ref_of(".".join(path), kind=KIND_MODULE, detail=_class_of(module)))


def _parts(module: Module, path: tuple[str, ...], seen: set[int]) -> Iterator[tuple[tuple[str, ...], Module]]:
    """named_modules, each once. torch's own asks modules whether they are equal, and for their hash."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    for name, part in list(module._modules.items()):
        if part is not None:
            # torch.compile wraps a module in another one, which is no part of the model.
            yield from _parts(part, path if name == "_orig_mod" else (*path, name), seen)


def _class_of(module: Module) -> str:
    from torch.jit import ScriptModule

    # A scripted module's class is RecursiveScriptModule; it knows what it was.
    name = getattr(module, "original_name", None) if isinstance(module, ScriptModule) else None
    return str(name or type(module).__name__)


_lock = threading.Lock()
_local = threading.local()
_handles: list[Any] = []
_warning: Any = None
_is_compiling: Callable[[], bool]  # torch's: also true in what the compiler itself runs to make code
_names = _Names()
_to = 0  # the sinks that asked for modules
_watcher: Watcher | None = None
_installed = 0  # counts installations


def start(to: int) -> None:
    """Modules to this sink too."""
    global _to
    with _lock:
        _hook()
        _to |= to


def stop(to: int) -> None:
    """No more modules to this sink; the hooks go with the last one."""
    global _to
    with _lock:
        _to &= ~to
        _unhook()


def watch(watcher: Watcher) -> None:
    """Tell it of modules too. One at a time."""
    global _watcher
    with _lock:
        _hook()
        _watcher = watcher


def unwatch(are_all_left: bool) -> None:
    """Tell it only of the ends of calls that it was told of. While threads are inside of some, the hooks stay, for the
    next session to remove: without them nobody would see these ends."""
    global _watcher
    with _lock:
        _watcher = None
        if are_all_left:
            _unhook()


def _hook() -> None:
    global _installed, _names
    if not _handles:
        _installed += 1
        _names = _Names()
        _install()


def _unhook() -> None:
    if _to or _watcher or not _handles:
        return
    for handle in _handles:
        handle.remove()
    _handles.clear()
    with contextlib.suppress(ValueError):  # the program has put other filters in place
        cast("list[Any]", warnings.filters).remove(_warning)
    _unwind(_stack(), 0)


def _install() -> None:
    global _warning, _is_compiling
    from torch.compiler import is_compiling as _is_compiling
    from torch.nn.modules import module
    from torch.utils.hooks import RemovableHandle

    # The same numbers every time: compiled code is guarded by a hook's number, and a new one in every session would
    # have it compiled again until torch gives up and runs it eagerly.
    following = RemovableHandle.next_id
    RemovableHandle.next_id = _HOOK_IDS
    try:
        _handles.append(module.register_module_forward_pre_hook(_before))
        _handles.append(module.register_module_forward_hook(_after, always_call=True))
    finally:
        RemovableHandle.next_id = following
    # What it warns of, that a compiled model's wrapper is a module as well, is what we want.
    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
    _warning = warnings.filters[0]


def _before(module: Module, inputs: object) -> None:
    if _is_compiling():
        return
    stack = _stack()
    if stack and stack[0].hooks != _installed:  # left open when an earlier session ended inside a call
        _unwind(stack, 0)
    outermost = stack[0].module() if stack else None
    ref, watcher = _names.ref(module, outermost), _watcher
    to = _to if ranges.push(ref, _to) >= 0 else 0
    frame = _Frame(weakref.ref(module), to, _installed)
    if watcher is not None:
        name = ref._obj.name.decode()
        if (entered := watcher.entered(name, len(stack), inputs)) is not None:
            frame.watched = (watcher, name, entered)
    stack.append(frame)


def _after(module: Module, _inputs: object, outputs: object) -> None:
    if _is_compiling():
        return
    stack = _stack()
    # Normally the top. A BaseException such as KeyboardInterrupt passes torch's hooks by: its frames go now.
    for depth in range(len(stack) - 1, -1, -1):
        if stack[depth].module() is module:
            if (watched := stack[depth].watched) is not None:
                watched[0].returned(watched[1], outputs)
            _unwind(stack, depth)
            return


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
