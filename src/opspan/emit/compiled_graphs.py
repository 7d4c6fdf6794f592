"""Finds what torch.compile's log does not say about a graph, while torch writes the log entry of this graph.

    modules_of_graph(name) -> {"graph": "before", "roots": {"self": "MLP"}, "nodes": {"linear": "L['self'].layers.0"}}
    nodes_of_kernels(name) -> {"cpp_fused_relu_0:1": ["relu"]}, which torch's log leaves out for a backward graph

`name` is the name of the entry. torch's log does not say which module a node is from, but the node itself does. The
graph is a local variable of the function that writes the entry. If torch takes a compiled graph from its cache, other
functions write the entry. They do not have the graph, so nothing is found then.

`roots` has the class of each module that is a local variable of the compiled function.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

_BEFORE: Final = ("compile_and_call_fx_graph",)
_COMPILED: Final = ("codegen_and_compile", "fx_codegen_and_compile")
# For each entry: whether its graph is from before or after compilation, and the functions that write the entry. The
# graph is the variable `gm` of these functions.
_WRITERS: Final = {
    "dynamo_output_graph": ("before", _BEFORE),
    "inductor_post_grad_graph": ("compiled", _COMPILED),
    "after_post_grad_graph": ("compiled", _COMPILED),
}
_DEEPEST: Final = 16  # the most frames between the log handler and the function that writes the entry


def modules_of_graph(name: str) -> dict[str, Any] | None:
    """Returns the modules of a graph in the form that is shown above, or None if none of its nodes has a module."""
    which, functions = _WRITERS.get(name, ("", ()))
    frame = _caller(functions)
    if frame is None:
        return None
    graph = getattr(frame.f_locals.get("gm"), "graph", None)
    nodes = {node.name: path for node in getattr(graph, "nodes", ()) if (path := _path_of(node))}
    roots = _roots(frame.f_locals.get("self")) if which == "before" else {}
    return {"graph": which, "roots": roots, "nodes": nodes} if nodes else None


def nodes_of_kernels(name: str) -> dict[str, list[str]] | None:
    """Returns, for each kernel, the names of the nodes that it computes, or None if they are not known."""
    if name != "inductor_provenance_tracking_node_mappings" or _caller(_COMPILED) is None:
        return None
    from torch._inductor import debug

    return getattr(debug, "_inductor_triton_kernel_to_post_grad_node_info", None) or None


def _caller(functions: tuple[str, ...]) -> FrameType | None:
    """Returns the frame of the nearest caller with one of these names."""
    frame: FrameType | None = sys._getframe(2) if functions else None
    for _ in range(_DEEPEST):
        if frame is None or frame.f_code.co_name in functions:
            return frame
        frame = frame.f_back
    return None


def _path_of(node: Any) -> str | None:
    """Returns the path of the innermost module that the node is from. A backward node has the path of
    its forward node."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = next(reversed(stack.values()))[0]
    return path if isinstance(path, str) else None


def _roots(output_graph: Any) -> dict[str, str]:
    from torch.nn import Module

    scope = getattr(output_graph, "local_scope", None)
    if not isinstance(scope, dict):
        return {}
    return {name: type(value).__name__ for name, value in scope.items() if isinstance(value, Module)}
