"""Calls a function once a program has imported torch. A program may make settings before it imports torch. If opspan
imported torch earlier, these settings would come too late."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from opspan.emit import notices, process_facts


def when_torch_is_imported(call: Callable[[], None]) -> None:
    """Calls the function once `import torch` has run, or now if torch is imported already."""
    if "torch" in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _TorchFinder(call))


def _say(error: Exception) -> None:
    notices.say(f"opspan: nothing is labelled in this process: {type(error).__name__}: {error}\n")


class _TorchFinder:
    """Finds torch through the other finders of sys.meta_path, and hooks torch's loader. Removes itself afterwards."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._is_searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                self._watch(spec.loader)
        except Exception as error:  # noqa: BLE001  # a finder or a loader of the program may raise anything
            _say(error)
            return None  # so Python asks the other finders itself
        finally:
            self._is_searching = False
        return spec

    def _watch(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # restore the loader first
            begin_ns = time.monotonic_ns()
            run(module)
            process_facts.note_torch_import(begin_ns)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                self._call()
            except Exception as error:  # noqa: BLE001  # torch itself was imported successfully
                _say(error)

        loader.exec_module = exec_module  # this loader object loads only torch
