"""Labels threads with the module that they run, in forward and in backward, and with the phase `forward`.

Modules are not called in backward. So hooks are put on the nodes of the autograd graph at which a module's call begins
and ends. A hook labels the thread that reaches its node. Tensors and the graph do not change, and the hooks are freed
with the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from opspan.emit import unharmed
from opspan.emit.phase_tags import FORWARD
from opspan.emit.thread_tags import ThreadTags

DEEPEST: Final = 4  # levels of modules that get labels. A deeper module has the label of the module around it
_MARK: Final = "opspan.module"
_MOST_VALUES: Final = 256  # the search for a tensor stops after this many inputs or outputs of a module


class ModuleTags:
    """Labels threads. `modules` calls this object at the begin and the end of each call of a module."""

    def __init__(self, tags: ThreadTags, named: bool, forward: bool) -> None:
        from torch import Tensor
        from torch._C import DisableTorchFunction, _functorch

        self._tags = tags
        self._named = named
        self._forward = forward
        self._tensor = Tensor
        self._node_of = Tensor.grad_fn.__get__
        self._bare = DisableTorchFunction
        self._is_transformed = _functorch.is_functorch_wrapped_tensor
        self._is_over = False

    def on_enter(self, name: str, depth: int, inputs: object) -> int | None:
        tags = self._tags
        if depth >= (DEEPEST if self._named else 1):
            return None
        tags.settle()
        labels = {}
        if self._forward and tags.get("phase") is None:
            labels["phase"] = FORWARD
        if self._named:
            self._mark(inputs, tags.get("module") or "")
            labels["module"] = name
        return tags.push(labels)

    def on_return(self, name: str, outputs: object) -> None:
        if self._named:
            self._mark(outputs, name)

    def on_leave(self, entered: int) -> None:
        self._tags.cut(entered)

    def end(self) -> None:
        """Ends the labelling of backward. Hooks in graphs that still exist do nothing any more."""
        self._is_over = True

    def _mark(self, values: object, name: str) -> None:
        """Marks the node of `values` with a hook. In backward the hook sets the label `name`, which stays until the
        next marked node.

        Backward runs in the reverse order of forward. The outputs of a module are also the outputs of its last part. So
        only the first mark of a node counts, which is the mark of the innermost module.
        """
        node = self._first_node(values)
        if node is not None and node.metadata.get(_MARK) is not self:
            node.metadata[_MARK] = self
            node.register_prehook(partial(unharmed.call, "labelling modules in backward", self._reached, name))

    def _reached(self, name: str, _gradients: object) -> None:
        if not self._is_over and self._tags.depth():  # depth 0: nothing noted the begin of this backward pass
            self._tags.change({"module": name})

    def _first_node(self, values: object) -> Any:
        """Returns the node of the first tensor that has one. Runs no code of the program, whose subclasses of Tensor,
        tuple or dict may override methods."""
        waiting, looked_at = [values], 0
        while waiting and looked_at < _MOST_VALUES:
            value = waiting.pop()
            looked_at += 1
            if issubclass(type(value), self._tensor):
                with self._bare():
                    if not self._is_transformed(value) and (node := self._node_of(value)) is not None:
                        return node
            else:
                waiting.extend([*islice(_parts(value), _MOST_VALUES)][::-1])
        return None


def _parts(value: Any) -> Iterable[object]:
    for kind, parts in ((tuple, tuple.__iter__), (list, list.__iter__), (dict, dict.values)):
        if issubclass(type(value), kind):
            return cast("Iterable[object]", parts(value))
    return ()
