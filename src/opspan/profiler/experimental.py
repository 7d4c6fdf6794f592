"""What `experimental_config=` asks for: torch's _ExperimentalConfig, field by field, honoured or said to be not."""

from __future__ import annotations

import gc
import re
import warnings
from typing import Any, Literal

from opspan.emit import unharmed
from opspan.emit.annotate import record_function

# What is done, whether it is asked for or not, or what there is nothing to do for without a device.
_ALWAYS = ("verbose", "profile_all_threads", "disable_external_correlation")
_DONE = ("capture_overload_names", "record_python_gc_info", "trace_only")
GC = "Python GC"
_OTHERS: dict[str, Any] = {"False": True, "True": False, "[]": ["x"], "''": "x"}  # than the values by default


def asked(config: object) -> dict[str, Any]:
    """The fields that are not what they are by default."""
    if config is None:
        return {}
    from torch._C._profiler import _ExperimentalConfig

    if not isinstance(config, _ExperimentalConfig):
        raise TypeError(f"experimental_config={config!r}: expected torch's _ExperimentalConfig")
    values, defaults = _values(config), _values(_ExperimentalConfig())
    places = _places(_ExperimentalConfig)
    return {name: values[place] for name, place in places.items() if values[place] != defaults[place]}


def note_unused(fields: dict[str, Any], stacklevel: int) -> None:
    """Whoever asked for what is not done hears of it."""
    if unused := [f"{name}={value!r}" for name, value in fields.items() if name not in (*_ALWAYS, *_DONE)]:
        warnings.warn(
            f"opspan.profiler does not use these of experimental_config: {', '.join(unused)}",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


class GarbageCollections:
    """A range for each time that Python looks for garbage, on the thread that does."""

    def __init__(self) -> None:
        self._range = record_function(GC)  # made now, because in the middle of a collection as little as may be is done

    def start(self) -> None:
        gc.callbacks.append(self._told)

    def stop(self) -> None:
        if self._told in gc.callbacks:
            gc.callbacks.remove(self._told)

    def _told(self, phase: Literal["start", "stop"], _: dict[str, int]) -> None:
        unharmed.call("recording Python's garbage collections", self._begin if phase == "start" else self._end)

    def _begin(self) -> None:
        self._range.__enter__()

    def _end(self) -> None:
        self._range.__exit__(None, None, None)


def _places(config_type: Any) -> dict[str, int]:
    """Which of the values each field is. torch shows most fields only to pickle, and up to 2.9 not in the order of the
    arguments: so each is set once."""
    defaults = _values(config_type())
    # What pybind writes: __init__(self: ..., profiler_metrics: list[str] = [], verbose: bool = False) -> None
    signature = (config_type.__init__.__doc__ or "").partition("\n")[0].partition(",")[2]
    found = {}
    for name, default in re.findall(r"(\w+): [^=]*= ([^,)]*)", signature):
        other = _values(config_type(**{name: _OTHERS[default]})) if default in _OTHERS else defaults
        changed = [place for place, value in enumerate(other) if value != defaults[place]]
        if changed:
            found[name] = changed[0]
    return found


def _values(config: Any) -> list[Any]:
    return [_plain(value) for value in config.__getstate__()]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value
