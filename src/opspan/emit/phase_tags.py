"""Labels threads that are in the backward pass, the optimizer or the data loader: once per phase, never per op.

opspan.analysis.phases has the same names of phases. torch has hooks for the optimizer only. All backward passes go
through one function of torch, and all batches go through another function. While a session is on, our functions replace
these two. A module that runs outside of these phases belongs to the phase `forward`, which `module_tags` labels.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar

from opspan.emit import notices, unharmed
from opspan.emit.compiled import compiling
from opspan.emit.thread_tags import ThreadTags

T = TypeVar("T")

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
DATA: Final = "data"

_DOING: Final = "labelling phases"


def start(tags: ThreadTags, named: bool) -> contextlib.ExitStack:
    """Starts labelling. To stop, the caller closes the returned stack. A phase that is open then ends later, on its
    thread. If `named` is not set, phases get no labels, and backward passes are noted only for `module_tags`."""
    from torch import autograd
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    with contextlib.ExitStack() as undo:
        backward = _Backward(tags, {"phase": BACKWARD} if named else {})
        _replace(undo, autograd, "_engine_run_backward", backward.begin, backward.end)
        if named:
            batches = dataloader._BaseDataLoaderIter
            _replace(undo, batches, "__next__", lambda *_: tags.push({"phase": DATA}), tags.cut)
            steps = _OptimizerSteps(tags)
            undo.callback(optimizer.register_optimizer_step_pre_hook(steps.before).remove)
            undo.callback(optimizer.register_optimizer_step_post_hook(steps.after).remove)
        return undo.pop_all()


def _replace(
    undo: contextlib.ExitStack, owner: Any, name: str, begin: Callable[..., T], end: Callable[[T], None]
) -> None:
    """Replaces the function `name` of `owner`. Before each call, `begin` gets the arguments. After the call, `end` gets
    the result of `begin`."""
    original = getattr(owner, name, None)
    if original is None:
        notices.warn(f"this torch has no {owner.__name__}.{name}: its phase gets no label", stacklevel=5)
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        begun = unharmed.call(_DOING, begin, *args)
        try:
            return original(*args, **kwargs)
        finally:
            if begun is not None:
                unharmed.call(_DOING, end, begun)

    def restore() -> None:
        if getattr(owner, name) is replaced:  # otherwise the program's function wraps ours, and ours must stay
            setattr(owner, name, original)

    undo.callback(restore)
    setattr(owner, name, replaced)


class _Backward:
    def __init__(self, tags: ThreadTags, labels: dict[str, str]) -> None:
        from torch import Tensor
        from torch._C import DisableTorchFunction

        self._tags = tags
        self._labels = labels
        self._tensor = Tensor
        self._bare = DisableTorchFunction

    def begin(self, outputs: Any = (), *_: object) -> tuple[int, list[Any]]:
        # The backward of CPU tensors runs on the calling thread. Each device has an autograd thread for its backward.
        hook = functools.partial(unharmed.call, _DOING, self._on_engine_thread)
        roots = outputs if type(outputs) in (tuple, list) else ()
        handles = [node.register_prehook(hook) for root in roots if (node := self._node_elsewhere(root)) is not None]
        return self._tags.push(self._labels), handles

    def end(self, begun: tuple[int, list[Any]]) -> None:
        depth, handles = begun
        for handle in handles:
            handle.remove()
        self._tags.cut(depth)

    def _node_elsewhere(self, root: Any) -> Any:
        """Returns the node of a tensor, or None if the tensor is certainly on the CPU. This is never certain for a
        subclass of Tensor, because reading the device would run code of the program."""
        if not issubclass(type(root), self._tensor):
            return None
        with self._bare():
            is_here = type(root) is self._tensor and root.device.type == "cpu"
            return None if is_here else self._tensor.grad_fn.__get__(root)

    def _on_engine_thread(self, _gradients: object) -> None:
        if self._tags.depth():  # an outer backward pass has already labelled this thread
            return
        from torch.autograd import Variable

        depth = self._tags.push(self._labels)
        # torch calls `cut` on the thread that finishes the backward. That is the calling thread, unless a device takes
        # part.
        cut = functools.partial(unharmed.call, _DOING, self._tags.cut, depth)
        Variable._execution_engine.queue_callback(cut)


class _OptimizerSteps:
    """Labels steps of optimizers. torch calls no hook after a step that raises an error. Such a step counts as ended
    once the frame of its function is gone."""

    def __init__(self, tags: ThreadTags) -> None:
        self._tags = tags
        self._local = threading.local()

    def before(self, *_: object) -> None:
        if not compiling():
            unharmed.call(_DOING, self._begin, sys._getframe(1))

    def after(self, *_: object) -> None:
        if not compiling():
            unharmed.call(_DOING, self._end)

    def _begin(self, step: FrameType) -> None:
        self._tags.settle()
        depth = self._tags.push({"phase": OPTIMIZER}, functools.partial(_is_running, id(step), step.f_code))
        self._local.depths = [*(outer for outer in self._depths() if outer < depth), depth]

    def _end(self) -> None:
        if depths := self._depths():
            self._tags.cut(depths.pop())

    def _depths(self) -> list[int]:
        return getattr(self._local, "depths", [])


def _is_running(number: int, code: object) -> bool:
    # The frame is identified by its id, because a reference to it would keep all its variables alive.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (id(frame) == number and frame.f_code is code):
        frame = frame.f_back
    return frame is not None
