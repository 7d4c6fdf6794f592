"""Runs two functions of ours in every call of an nn.Module, by changing the code through which modules are called.

It is the code of `nn.Module._wrapped_call_impl`, which is also `nn.Module.__call__`. The function object stays, because
torch.fx and Dynamo keep references to it from their import on. Dynamo usually skips this function (see `_OURS`), so
there is no graph break and no recompiling, and strict export works. A program may still replace `nn.Module.__call__`.
Global forward hooks are not used, because they would change what Dynamo does, and cost more.

The new code does what torch's code does in the same number of frames. So the recursion limit allows as many nested
calls as before. The new code has torch's file and line, because Dynamo looks at the file, and people read tracebacks.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final

# torch's code since 2.1. The class is there to give the function its qualified name.
_TORCHS: Final = """
class Module:
    def _wrapped_call_impl(self, *args, **kwargs):
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        else:
            return self._call_impl(*args, **kwargs)
"""
# Dynamo traces this code if a class has its own `__call__` or a module has hooks. Then `opspan_enter` returns None.
_OURS: Final = """
class Module:
    def _wrapped_call_impl(self, *args, **kwargs):
        opened, result = opspan_enter(self, args), None
        try:
            call = self._call_impl if self._compiled_call_impl is None else self._compiled_call_impl
            result = call(*args, **kwargs)
            return result
        finally:
            if opened is not None:
                opspan_leave(opened, result)
"""

_function: FunctionType | None = None
_before: CodeType
_around: CodeType


def start(enter: Callable[[Any, Any], Any], leave: Callable[[Any, Any], None]) -> bool:
    """Makes each call of a module begin with `enter(module, inputs)`. If `enter` returns a value other than None, the
    call ends with `leave(value, outputs)` on the same thread. `outputs` is None after an exception. Neither function
    may raise. `start` must always get the same two functions. Returns False if this torch calls modules in an unknown
    way."""
    global _function, _before, _around
    if _function is None:
        from torch.nn import Module

        function = vars(Module).get("_wrapped_call_impl")
        if not isinstance(function, FunctionType) or not _is_known(function.__code__):
            return False
        # These names stay in torch's module, because calls that have begun look them up after `stop`, too.
        function.__globals__.update(opspan_enter=enter, opspan_leave=leave)
        _before, _around = function.__code__, _code_like(function.__code__)
        _function = function
    _function.__code__ = _around
    return True


def stop() -> None:
    """Makes new calls of modules run without `enter` and `leave`. Calls that have begun still end with `leave`."""
    if _function is not None and _function.__code__ is _around:
        _function.__code__ = _before


def _is_known(code: CodeType) -> bool:
    known = _compiled(ast.parse(_TORCHS), "")
    return (code.co_code, code.co_names, code.co_varnames) == (known.co_code, known.co_names, known.co_varnames)


def _code_like(code: CodeType) -> CodeType:
    """Returns our code. All instructions get the source position of the last call in torch's code."""
    tree = ast.parse(_OURS)
    last_call = [step for step in dis.get_instructions(code) if step.opname.startswith("CALL")][-1]
    line = max(filter(None, (line for _, line in dis.findlinestarts(code))))
    positions = getattr(last_call, "positions", None)  # None before Python 3.11
    columns = (0, 0) if positions is None else (positions.col_offset, positions.end_col_offset)
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno = node.end_lineno = line
            node.col_offset, node.end_col_offset = columns
        if isinstance(node, ast.FunctionDef):
            node.lineno = code.co_firstlineno
    return _compiled(tree, code.co_filename)


def _compiled(tree: ast.Module, file: str) -> CodeType:
    code = compile(tree, file, "exec", dont_inherit=True)
    for _ in ("the class", "the function"):
        code = next(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return code
