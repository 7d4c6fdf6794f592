"""Finds qualified names of modules, such as `MLP.layers.0`, at their first call, without running code of the program.

Properties of a module, and methods such as `__getattr__`, `__eq__` or `__len__`, may be code of the program that raises
errors, takes long or counts calls. So everything is read from the dictionary of the object itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar, cast

from opspan.emit import ranges
from opspan.emit.ranges import Ref
from opspan.emit.sinks import KIND_MODULE

V = TypeVar("V")

# Maximum number of look-ups of names for one outermost module. The limit is for models that create new modules in every
# forward.
_MAX_LOOKUPS: Final = 8
# The greatest length of a name. A name grows with each level, and in a linked list of modules every module adds a
# level.
_LONGEST: Final = 1024
_class_name = type.__dict__["__name__"].__get__  # a metaclass may define another `__name__`


class ModuleMap(Generic[V]):
    """Maps living modules to values. It compares modules by identity, because a module that defines `__eq__` often has
    no `__hash__`."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}

    def get(self, module: Any) -> V | None:
        entry = self._entries.get(id(module))
        return entry[1] if entry is not None and entry[0]() is module else None

    def set(self, module: Any, value: V) -> None:
        entries, number = self._entries, id(module)

        def forget(gone: weakref.ref[Any]) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is gone:
                del entries[number]

        entries[number] = (weakref.ref(module, forget), value)


class Names:
    """Names of modules. A name begins with the class of the outermost module. There is no lock, because it might be
    held at a fork or in a signal handler. Two threads that look up the same module get the same name."""

    def __init__(self) -> None:
        from torch.jit import ScriptModule
        from torch.nn import Module

        self._script_module = ScriptModule
        self._module = Module
        self._dict_of = Module.__dict__["__dict__"].__get__
        self._found: ModuleMap[tuple[Ref, str]] = ModuleMap()
        self._lookups: ModuleMap[int] = ModuleMap()
        self.get = self._found.get  # returns the range and the name of a known module

    def learn(self, module: Any, outermost: Any) -> tuple[Ref, str]:
        """Looks up an unknown module. `outermost` is the module of the outermost call in progress on this thread, or
        None."""
        lookups = _MAX_LOOKUPS if outermost is None else self._lookups.get(outermost) or 0
        if lookups < _MAX_LOOKUPS:
            self._lookups.set(outermost, lookups + 1)
            self._learn_parts(outermost)
        if (entry := self.get(module)) is None:  # not found inside `outermost`: its name begins with its own class
            entry = self._learn_parts(module)
        return entry

    def _learn_parts(self, root: Any) -> tuple[Ref, str]:
        """Learns the names of `root` and of all its parts. torch's named_modules is not used, because it compares
        modules and recurses at each level."""
        compiled = dict.get(self._parts_of(root), "_orig_mod")
        root_name = self._class_of(root if compiled is None else compiled)
        seen: set[int] = set()
        waiting = [(root_name, root)]
        while waiting:
            name, module = waiting.pop()
            if id(module) not in seen:
                seen.add(id(module))
                self._learn_one(module, name)
                waiting.extend([*self._named_parts(module, name)][::-1])
        return self._learn_one(root, root_name)

    def _learn_one(self, module: Any, name: str) -> tuple[Ref, str]:
        entry = ranges.ref_of(name, kind=KIND_MODULE, detail=self._class_of(module)), name
        self._found.set(module, entry)
        return entry

    def _named_parts(self, module: Any, name: str) -> Iterator[tuple[str, Any]]:
        for part_name, part in list(dict.items(self._parts_of(module))):
            if issubclass(type(part), self._module):
                # torch.compile wraps a module in a module of torch's, which holds it as `_orig_mod`. The part
                # `_orig_mod` is not added to the name, so both modules have the same name.
                yield (name if part_name == "_orig_mod" else _bounded(f"{name}.{part_name}")), part

    def _parts_of(self, module: Any) -> dict[str, Any]:
        """Returns the submodules by their names. Callers must use dict's own methods, because a program's subclass of
        dict may override methods."""
        parts = self._state_of(module).get("_modules")
        if not issubclass(type(parts), dict):  # a scripted module has an object around the dictionary
            parts = getattr(parts, "_python_modules", {})
        return cast("dict[str, Any]", parts)

    def _state_of(self, module: Any) -> dict[str, Any]:
        state: dict[str, Any] = self._dict_of(module)
        scripted = state.get("_actual_script_module")  # torch.jit.trace wraps the scripted module
        return state if scripted is None else self._dict_of(scripted)

    def _class_of(self, module: Any) -> str:
        # A scripted module's class is RecursiveScriptModule. The object in `_c` knows the original class.
        inside = self._state_of(module).get("_c") if issubclass(type(module), self._script_module) else None
        return (str(inside._type().name()) if inside is not None else "") or str(_class_name(type(module)))


def _bounded(name: str) -> str:
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[half - _LONGEST + 1 :]}"
