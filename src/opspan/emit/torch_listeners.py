"""Tells whether anybody but opspan, such as torch.profiler or an ExecutionTraceObserver, gets torch's own ranges."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opspan.emit import fallback

_HAS_CALLBACKS = "_ZN2at12hasCallbacksEv"  # at::hasCallbacks()

_tracing_state: Callable[[], Any] = torch._C._get_tracing_state
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack


def _never_known() -> bool:
    return True


def _probe() -> Callable[[], int]:
    """Returns torch's function that says whether anybody gets torch's ranges. If there is no such function, the answer
    is always yes."""
    try:
        library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        has_callbacks = getattr(library, _HAS_CALLBACKS)
    except (OSError, AttributeError):
        return _never_known
    has_callbacks.restype = ctypes.c_bool
    has_callbacks.argtypes = ()
    probe: Callable[[], int] = has_callbacks
    return probe


_others: Callable[[], int] = _probe()
_enter_silent: Callable[[Callable[[], Any]], Any] | None = None


def use_observer(others: Callable[[], int], enter_silent: Callable[[Callable[[], Any]], Any]) -> None:
    """Uses these functions of the observer from now on. torch's function would count the observer's own callbacks."""
    global _others, _enter_silent
    _others, _enter_silent = others, enter_silent


def listen() -> bool:
    """Returns whether a range of torch's own has to begin: for torch's listeners, or for torch.jit.trace and dispatch
    modes, which see the calls that begin and end such a range."""
    if _others() and not fallback.emitters_on:
        return True
    return _tracing_state() is not None or _modes() > 0


def begin_silently(enter: Callable[[], Any]) -> Any:
    """Returns the result of `enter`, which begins a range of torch's own. opspan's sinks do not get this range."""
    return enter() if _enter_silent is None else _enter_silent(enter)
