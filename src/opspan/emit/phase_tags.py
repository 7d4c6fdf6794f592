"""Labels threads that are in the backward pass, the optimizer or the data loader: once for each, never per op.

Phases have the names that opspan.analysis.phases gives to those of a trace. torch has hooks for the optimizer alone: of
the two functions that every backward pass and every batch go through, ours stand in place while a session is on.
Forward is what modules do while no phase says otherwise: `module_tags` says it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from opspan.emit import notices
from opspan.emit.compiled import compiling
from opspan.emit.thread_tags import ThreadTags

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
DATA: Final = "data"


def start(tags: ThreadTags, named: bool) -> contextlib.ExitStack:
    """Closing the answer ends it; what is open then still ends in its thread. Not `named`: what is inside of a backward
    pass gets labels, the phase itself none."""
    from torch import autograd
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    with contextlib.ExitStack() as undo:
        backward = _Backward(tags, {"phase": BACKWARD} if named else {})
        _replace(undo, autograd, "_engine_run_backward", backward.run)
        if named:
            _replace(undo, dataloader._BaseDataLoaderIter, "__next__", functools.partial(_next_batch, tags))
            steps = _OptimizerSteps(tags)
            undo.callback(optimizer.register_optimizer_step_pre_hook(steps.before).remove)
            undo.callback(optimizer.register_optimizer_step_post_hook(steps.after).remove)
        return undo.pop_all()


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, by: Callable[..., Any]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        notices.warn(f"this torch has no {owner.__name__}.{name}: its phase gets no label", stacklevel=5)
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if compiling() else by(original, *args, **kwargs)

    def restore() -> None:
        if getattr(owner, name) is replaced:  # else another's function is around ours, which goes on to call torch's
            setattr(owner, name, original)

    undo.callback(restore)
    setattr(owner, name, replaced)


def _next_batch(tags: ThreadTags, original: Callable[..., Any], loader: Any) -> Any:
    depth = tags.push({"phase": DATA})
    try:
        return original(loader)
    finally:
        tags.cut(depth)


class _Backward:
    def __init__(self, tags: ThreadTags, labels: dict[str, str]) -> None:
        self._tags = tags
        self._labels = labels

    def run(self, original: Callable[..., Any], outputs: Any, *args: Any, **kwargs: Any) -> Any:
        # What is on the CPU runs on this thread; what is on a device, on a thread that autograd has for the device.
        handles = [
            node.register_prehook(self._on_engine_thread)
            for root in outputs
            if (node := getattr(root, "grad_fn", None)) is not None and root.device.type != "cpu"
        ]
        depth = self._tags.push(self._labels)
        try:
            return original(outputs, *args, **kwargs)
        finally:
            self._tags.cut(depth)
            for handle in handles:
                handle.remove()

    def _on_engine_thread(self, _gradients: object) -> None:
        if self._tags.depth():  # a backward pass inside of another one, and that is this thread's already
            return
        from torch.autograd import Variable

        depth = self._tags.push(self._labels)
        # It is called on the thread that runs the last of this pass: this one, where no other device takes part.
        Variable._execution_engine.queue_callback(functools.partial(self._tags.cut, depth))


class _OptimizerSteps:
    """torch calls no hook after a step that raises: then it is over when the function around it has gone."""

    def __init__(self, tags: ThreadTags) -> None:
        self._tags = tags
        self._local = threading.local()

    def before(self, *_: object) -> None:
        if compiling():
            return
        frame = sys._getframe(1)
        self._tags.settle()
        depth = self._tags.push({"phase": OPTIMIZER}, functools.partial(_is_running, id(frame), frame.f_code))
        self._local.depths = [*(one for one in self._depths() if one < depth), depth]

    def after(self, *_: object) -> None:
        if not compiling() and (depths := self._depths()):
            self._tags.cut(depths.pop())

    def _depths(self) -> list[int]:
        return getattr(self._local, "depths", [])


def _is_running(number: int, code: object) -> bool:
    # By its number: to keep the frame would keep all that it holds.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (id(frame) == number and frame.f_code is code):
        frame = frame.f_back
    return frame is not None
