"""record_function: torch.profiler's class, with a range for opspan's sinks and tools as well.

It is a subclass of torch's, for `isinstance` and for torch.compile. If others listen to torch (its own profilers, an
ExecutionTraceObserver), torch's range begins and ends too. Importing this module imports torch.
"""

from __future__ import annotations

import inspect
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

try:
    import torch
    from torch.profiler import record_function as _torchs
except ImportError as error:
    raise ImportError(f"record_function is a class of torch's ({error}): pip install torch, or use annotate") from error

from opspan.emit import ranges, torch_listeners
from opspan.emit.annotate import Annotation
from opspan.emit.compiled import compiling, has_old_compiler, torchs_range
from opspan.emit.ranges import Ref

_WITHOUT_OVERRIDES: Final = torch._C.DisableTorchFunctionSubclass  # overrides make the end of a range slow
# Older releases of torch.compile ignore ranges, and cannot compile a `__new__` that returns a range of torch.
_IGNORES_RANGES: Final = has_old_compiler()
_NOT_COPIED: Final = ("_ref", "run_callbacks_on_exit")
_enter: Any = torch.ops.profiler._record_function_enter_new.default
_exit: Any = torch.ops.profiler._record_function_exit._RecordFunction
_end_with: Any = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction


class _TorchScriptName:
    """The attribute `_jit_override_qualname` of our class: the name of torch's class. Before TorchScript compiles a
    class, it looks for a compiled class of that name. So it uses torch's class wherever a program uses ours."""

    def __get__(self, _: object, owner: type) -> str:
        from torch import _jit_internal
        from torch.jit import _recursive, _state

        name = _jit_internal._qualified_name(_torchs)
        if _state._get_script_class(_torchs) is None:
            globals_of = _jit_internal.createResolutionCallbackForClassMethods(_torchs)
            _recursive._compile_and_register_class(_torchs, globals_of, name)
        return str(name)


class _NoRange:
    """Stands for a range in compiled code, where torch ignores ranges."""

    def __enter__(self) -> _NoRange:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, function: Any) -> Any:
        return function


class _Signature:
    """The signature of `record_function(...)`. A subclass has the signature of its own `__init__`."""

    def __get__(self, _: object, owner: type) -> inspect.Signature:
        signature = inspect.signature(owner.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class record_function(Annotation, _torchs):  # type: ignore[misc]  # noqa: N801  # torch's name
    """Put a range around a `with` block or a function, as torch.profiler.record_function does, for every tool.

    Args:
        name: what the range is called.
        args: a text that is shown with the range.
    """

    run_callbacks_on_exit = True
    record = None
    _color, _category, _payload = 0, None, None
    _ref: Ref = None
    _jit_override_qualname = _TorchScriptName()

    if not TYPE_CHECKING:  # a type checker takes the arguments from __init__, as inspect.signature does
        __signature__ = _Signature()

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if compiling() and cls is record_function:
                return _NoRange() if _IGNORES_RANGES else torchs_range(*args, **kwargs)
            return object.__new__(cls)

    def __init__(self, name: str, args: str | None = None) -> None:
        if compiling():
            return
        # Set what Annotation.__init__ sets. Calling Annotation.__init__ would take a tenth of the range's whole cost.
        self.name = ranges.text_of(name)
        self.args = args if args is None else str(args)
        self._pushed = {}

    def __enter__(self) -> record_function:
        if compiling():
            return self
        pushed: Any
        if torch_listeners.listen():
            is_ours = ranges.listening()
            torchs = self._begin_silently() if is_ours else _enter(self.name, self.args)
            pushed = torchs, ranges.push(self._ensure_ref()) if is_ours else -1
        elif ranges.listening() or self._pushed:
            pushed = ranges.push(self._ref or self._ensure_ref())
        else:
            return self
        thread = get_ident()
        self._pushed[thread] = pushed, self._pushed.get(thread)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        others = {key: value for key, value in vars(self).items() if key not in _NOT_COPIED}
        return _again, (type(self), self.name, self.args, others)

    def _call_end_callbacks_on_future(self, fut: Any) -> Any:
        """Ends the innermost range of this thread only when the future is done. Returns a future with the same
        value."""
        if not self.run_callbacks_on_exit:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once.")
        self.run_callbacks_on_exit = False
        thread = get_ident()
        if thread not in self._pushed:  # nobody listened
            return fut
        pushed, around = self._pushed[thread]
        self._pushed[thread] = -1, around
        if type(pushed) is tuple:
            torchs, pushed = pushed
            with _WITHOUT_OVERRIDES():
                fut = _end_with(torchs, fut)
        if pushed >= 0:
            end = ranges.detach()
            fut.add_done_callback(lambda _: end())
        return fut

    # --- Annotation calls the functions below. If torch has listeners, a begun range is a pair: (torch's, opspan's).

    def _listening(self) -> object:
        return ranges.listening() or torch_listeners.listen()

    def _push(self, ref: Ref) -> Any:
        return (self._begin_silently(), ranges.push(ref)) if torch_listeners.listen() else ranges.push(ref)

    def _pop(self, pushed: Any) -> None:
        if type(pushed) is tuple:
            torchs, pushed = pushed
            with _WITHOUT_OVERRIDES():
                _exit(torchs)
        if pushed >= 0:
            ranges.pop()

    def _start(self, ref: Ref) -> Any:
        started = ranges.range_start(ref)
        return (self._begin_silently(), started) if torch_listeners.listen() else started

    def _finish(self, started: Any) -> None:
        if type(started) is tuple:
            torchs, started = started
            with _WITHOUT_OVERRIDES():
                _exit(torchs)
        ranges.range_end(started)

    def _begin_silently(self) -> Any:
        name, args = self.name, self.args
        return torch_listeners.begin_silently(lambda: _enter(name, args))


def _again(kind: type[record_function], name: str, args: str | None, others: dict[str, Any]) -> record_function:
    """Creates a copied or unpickled range. Does not call the `__init__` of a subclass, which may need other
    arguments."""
    copy: record_function = kind.__new__(kind)
    record_function.__init__(copy, name, args)
    copy.__dict__.update(others)
    return copy
