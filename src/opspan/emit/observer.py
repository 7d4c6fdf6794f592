"""Finds and loads the observer, the only native code that knows torch. native/observer/observer.h has its C functions.

opspan's wheels have an observer for each release of torch (tools/observers). For any other torch, or in an install from
source, the observer is compiled on this machine (observer_cache.py).
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from pathlib import Path
from typing import Any, Final

from opspan import libraries
from opspan.emit import compiler, notices, observer_cache, python_frames, sinks
from opspan.emit.installed_torch import Torch
from opspan.emit.sink_list import SINKS
from opspan.errors import ObserverError

ABI: Final = 9

# what a sink gets of inputs: nothing; sizes; sizes and addresses of tensors; all that torch.profiler records
NO_INPUTS, SIZES, TENSORS, ALL_INPUTS = range(4)

_loaded: Observer | None = None
_lock = threading.Lock()


class Observer:
    """The loaded library. It is never unloaded, because torch may still run one of the library's callbacks."""

    def __init__(
        self, path: Path, descriptor: int, native: sinks.Sinks, lies_at: Path | None = None, torch: Torch | None = None
    ) -> None:
        """Loads the library from `descriptor`, which stays open, as libraries.load requires. `path` is the final path
        of the file. If the file is not there yet, `lies_at` is its present path. For a ready-made observer, `torch` is
        the installed torch. It must be the torch that the library was built for; this is checked before the library
        uses anything of torch."""
        try:
            library = libraries.load(lies_at or path, descriptor)
            version = library.opspan_observer_abi()
            if version != ABI:
                raise ObserverError(f"{path} speaks version {version} of observer.h, this opspan version {ABI}")
            library.opspan_observer_built_for.restype = ctypes.c_char_p
            # The version of torch, its git version and the C++ ABI; empty if the library was built on this machine.
            self.built_for: str = library.opspan_observer_built_for().decode()
            if torch is not None and self.built_for.split()[-2:] != [torch.git, _abi(torch)]:
                raise ObserverError(f"{path} is for torch {self.built_for}, not for {torch.version} {torch.git}")
            if not library.opspan_observer_fits():
                raise ObserverError(f"{path} was compiled for another torch: torch's ranges have other fields")
            pointers = (ctypes.c_void_p * len(SINKS))(*(native.sink_of(sink.number) for sink in SINKS))
            failed = library.opspan_observer_init(pointers)
        except (OSError, AttributeError) as error:
            reason = str(error).replace(f"/proc/self/fd/{descriptor}", path.name)
            raise ObserverError(f"{path} cannot be loaded ({reason})") from error
        if failed:
            raise ObserverError(f"{path} refused to start (error number {failed})")
        self.path = path
        self._library: Any = library
        self._library.opspan_observer_stacks.argtypes = (ctypes.c_int, ctypes.c_void_p)
        quick = ctypes.PyDLL(str(path), handle=library._handle)
        # enter_fast calls the `__enter__` of torch's _RecordFunctionFast, so that the range begins even while torch's
        # own profiler is off. enter_silent calls a function that begins a range for other listeners than opspan.
        self.enter_fast: Any = quick.opspan_observer_enter_fast
        self.enter_silent: Any = quick.opspan_observer_enter_silent
        for call in (self.enter_fast, self.enter_silent):
            call.argtypes, call.restype = (ctypes.py_object,), ctypes.py_object
        self.others_listen: Any = quick.opspan_observer_others  # returns whether anybody but opspan gets torch's ranges

    def attach(self, sink: int, inputs: int) -> None:
        """Sends every op of every thread to this sink from now on."""
        failed = self._library.opspan_observer_attach(sink, inputs)
        if failed:
            raise ObserverError(f"the observer could not be attached (error number {failed})")

    def detach(self, sink: int) -> None:
        self._library.opspan_observer_detach(sink)

    def memory(self, sink: int, on: bool) -> bool:
        """Reports to this sink the host memory that torch takes and gives back. Returns False if this memory cannot be
        watched."""
        return int(self._library.opspan_observer_memory(sink, int(on))) == 0

    def stacks(self, sink: int, on: bool) -> bool:
        """Adds to each op the Python functions that call it. Returns False if this Python's stacks cannot be read."""
        frames = python_frames.load() if on else None
        return (frames is not None or not on) and int(self._library.opspan_observer_stacks(sink, frames)) == 0

    def threads(self, on: bool) -> None:
        """Tells Kineto, torch's collector of device events, of each thread that runs an op. So Kineto and the observer
        give threads the same numbers."""
        self._library.opspan_observer_threads(int(on))

    def overloads(self, sink: int, on: bool) -> None:
        """Adds the names of overloads to ops."""
        self._library.opspan_observer_overloads(sink, int(on))

    def empty(self, on: int) -> None:
        """Attaches callbacks that do nothing, to measure the lowest possible cost. If `on` is 2, torch passes the
        inputs to them. If `on` is 0, removes them."""
        self._library.opspan_observer_empty(on)


def load() -> Observer:
    """Returns the observer for this process' torch. Builds it if necessary. Raises ObserverError if it cannot be built
    or loaded, and EmitError if the library of the sinks is missing."""
    global _loaded
    with _lock:
        if _loaded is None:
            native = sinks.require()
            _loaded = _load(Torch.here(), native)
            from opspan.emit import torch_listeners  # it imports torch

            torch_listeners.use_observer(_loaded.others_listen, _loaded.enter_silent)
        return _loaded


def _load(torch: Torch, native: sinks.Sinks) -> Observer:
    refused = ""
    try:
        if (path := ready_made(torch)) is not None:
            return _load_ready_made(path, torch, native)
    except (ObserverError, OSError) as error:
        refused = str(error)
        notices.warn(f"{refused}: an observer is compiled instead", stacklevel=2)

    def load_built(path: Path, descriptor: int, lies_at: Path) -> Observer:
        return Observer(path, descriptor, native, lies_at)

    entry = observer_cache.find(torch)
    if entry.path is not None:
        try:
            return load_built(entry.path, entry.descriptor, entry.path)
        except ObserverError as error:
            if compiler.find() is None:
                raise
            notices.warn(f"{error}: building it anew", stacklevel=2)
    return observer_cache.build(torch, load_built, over=entry.path, refused=entry.refused or refused)


def ready_made(torch: Torch) -> Path | None:
    """Returns the path of the observer for this torch that came with opspan, or None if opspan has none."""
    if torch.debug:
        return None
    path = libraries.ready_made(torch.git, _abi(torch), platform.machine())
    return path if path.is_file() else None


def _load_ready_made(path: Path, torch: Torch, native: sinks.Sinks) -> Observer:
    libraries.check_whole(path)
    return Observer(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC), native, torch=torch)


def _abi(torch: Torch) -> str:
    return "cxx11" if torch.cxx11_abi else "pre"
