"""torch's own emitters, used if the observer cannot be built or loaded. Their labels say less."""

from __future__ import annotations

from typing import Any

# How many of torch's emitters are on. While one is on, opspan's record_function does not begin torch's range as well,
# because the emitter would send it to the tool, which already gets opspan's range.
emitters_on = 0


class TorchEmitter:
    """torch.autograd.profiler.emit_nvtx or emit_itt, created anew each time it is turned on."""

    def __init__(self, name: str, record_shapes: bool) -> None:
        self._name = name
        self._record_shapes = record_shapes
        self._on: Any = None

    def is_there(self) -> bool:
        import torch

        return hasattr(torch.autograd.profiler, self._name)

    def turn(self, on: bool) -> None:
        global emitters_on
        import torch

        if on:
            self._on = getattr(torch.autograd.profiler, self._name)(record_shapes=self._record_shapes)
            self._on.__enter__()
            emitters_on += 1
        elif self._on is not None:
            emitters_on -= 1
            self._on.__exit__(None, None, None)
            self._on = None
