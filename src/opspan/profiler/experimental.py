"""Reads the argument `experimental_config=`, which is torch's _ExperimentalConfig. Warns about fields that have no
effect in opspan."""

from __future__ import annotations

import gc
import re
import warnings
from typing import Any, Literal

from opspan.emit import unharmed
from opspan.emit.annotate import annotate

# Fields that are ignored without a warning, because opspan always does what they request, or because they need a
# device.
_ALWAYS = ("verbose", "profile_all_threads", "disable_external_correlation")
_DONE = ("capture_overload_names", "record_python_gc_info", "trace_only")
GC = "Python GC"
# For each default, written as in torch's docstring, some other value (see `_places`).
_OTHERS: dict[str, Any] = {"False": True, "True": False, "[]": ["x"], "''": "x"}


def fields_of(config: object) -> dict[str, Any]:
    """Returns the fields whose values differ from their defaults."""
    if config is None:
        return {}
    from torch._C._profiler import _ExperimentalConfig

    if not isinstance(config, _ExperimentalConfig):
        raise TypeError(f"experimental_config={config!r}: expected torch's _ExperimentalConfig")
    values, defaults = _values(config), _values(_ExperimentalConfig())
    places = _places(_ExperimentalConfig)
    return {name: values[place] for name, place in places.items() if values[place] != defaults[place]}


def note_unused(fields: dict[str, Any], stacklevel: int) -> None:
    """Warns about the fields that have no effect."""
    if unused := [f"{name}={value!r}" for name, value in fields.items() if name not in (*_ALWAYS, *_DONE)]:
        warnings.warn(
            f"opspan.profiler does not use these of experimental_config: {', '.join(unused)}",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


class GarbageCollections:
    """Records a range for each run of Python's garbage collector, on the thread that runs it."""

    def __init__(self) -> None:
        self._range = annotate(GC)  # created now, because a callback of the garbage collector should do little

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: Literal["start", "stop"], _: dict[str, int]) -> None:
        enter_or_exit = self._range.__enter__ if phase == "start" else self._range.__exit__
        unharmed.call("recording Python's garbage collections", enter_or_exit)


def _places(config_type: Any) -> dict[str, int]:
    """Returns the index of each field in the list that `_values` returns. torch shows most fields only through pickle,
    and up to torch 2.9 their order in the pickle is not that of the arguments. So this function sets one field at a
    time, and finds the index whose value changes."""
    defaults = _values(config_type())
    # The first line of pybind's docstring is __init__(self: ..., profiler_metrics: list[str] = [], verbose: bool =
    # False) -> None
    signature = (config_type.__init__.__doc__ or "").partition("\n")[0].partition(",")[2]
    places = {}
    for name, default in re.findall(r"(\w+): [^=]*= ([^,)]*)", signature):
        other = _values(config_type(**{name: _OTHERS[default]})) if default in _OTHERS else defaults
        changed = [place for place, value in enumerate(other) if value != defaults[place]]
        if changed:
            places[name] = changed[0]
    return places


def _values(config: Any) -> list[Any]:
    return [_plain(value) for value in config.__getstate__()]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value
