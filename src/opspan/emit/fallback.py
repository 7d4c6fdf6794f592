"""torch's own emitters, where there is no compiler to build the observer with. Poorer, but something."""

from __future__ import annotations

from typing import Any


class TorchEmitter:
    """torch.autograd.profiler.emit_nvtx or emit_itt, a fresh one each time it is turned on."""

    def __init__(self, name: str, record_shapes: bool) -> None:
        self._name = name
        self._record_shapes = record_shapes
        self._on: Any = None

    @property
    def lost(self) -> str:
        """What the user does without, as part of a sentence."""
        if self._name == "emit_itt":
            return "bare names, without sequence numbers, ids, sizes and relations, none in forks"
        return "torch's text labels, without forward threads, none in forks"

    def works(self) -> bool:
        """Not every torch can. Its emit_nvtx waits for the device first, and must not be what starts CUDA."""
        import torch

        if not hasattr(torch.autograd.profiler, self._name):
            return False
        if self._name == "emit_nvtx":
            return bool(torch.cuda.is_initialized())
        return bool(torch.profiler.itt.is_available())

    def turn(self, on: bool) -> None:
        import torch

        if on:
            self._on = getattr(torch.autograd.profiler, self._name)(record_shapes=self._record_shapes)
            self._on.__enter__()
        elif self._on is not None:
            self._on.__exit__(None, None, None)
            self._on = None
