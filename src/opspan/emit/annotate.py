"""annotate, mark and record_function: a user's own ranges, for every tool that listens. `sessions` labels torch's ops.

A range around plain code is pushed and popped on its thread, so that it nests with the ops inside. A coroutine or a
generator may pause while other code runs on its thread. So its range is not on the thread's stack, and is ended by its
id.

torch.compile may trace every function that user code calls. So each of our functions asks `compiling()` first, and
torch.compile need not understand the code after that.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import AsyncIterator, Callable, Generator
from threading import get_ident
from typing import Any, ParamSpec, SupportsFloat, SupportsIndex, TypeVar, cast, overload

from opspan.emit import ranges, uses
from opspan.emit.compiled import compiling, for_torchscript, of_torch, torchs_range
from opspan.emit.payload import payload_of
from opspan.emit.ranges import Ref
from opspan.emit.sinks import KIND_USER

P = ParamSpec("P")
R = TypeVar("R")

COLORS = {
    "blue": 0x1F77B4,
    "orange": 0xFF7F0E,
    "green": 0x2CA02C,
    "red": 0xD62728,
    "purple": 0x9467BD,
    "brown": 0x8C564B,
    "pink": 0xE377C2,
    "gray": 0x7F7F7F,
    "yellow": 0xFFD92F,
    "cyan": 0x17BECF,
    "white": 0xFFFFFF,
    "black": 0x000000,
}


class Annotation:
    """A range to enter with `with` or `async with`, any number of times, or to put on a function with `@`.

    Threads, tasks and generators can share an annotation, because each of them ends the range that it began.
    """

    __slots__ = ("_category", "_color", "_payload", "_pushed", "_ref", "args", "name")

    def __init__(
        self,
        name: str | None,
        color: int = 0,
        category: str | None = None,
        args: str | None = None,
        payload: int | float | None = None,
    ) -> None:
        self.name = name
        self.args = args
        self._color = color
        self._category = category
        self._payload = payload
        self._ref: Ref = None  # created when somebody listens
        # For each thread, the result of the innermost push, and the entry of the push around it. A thread without an
        # entry has pushed nothing, because nobody listened, and pops nothing.
        self._pushed: dict[int, tuple[int, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles leave out open ranges, because these ranges do not belong to the copy. They also leave out
        # C structures, which cannot be copied.
        return _again, (self.name, self._color, self._category, self.args, self._payload)

    def __enter__(self) -> Annotation:
        if compiling():
            return self
        # Inside an open block, an entry is needed even if nobody listens any more. Otherwise the end of this block
        # would end the range of the open block.
        if ranges.listening() or self._pushed or self.name is None:
            pushed, thread = ranges.push(self._ref or self._ensure_ref()), get_ident()
            self._pushed[thread] = (pushed, self._pushed.get(thread))
        return self

    def __exit__(self, *_: object) -> None:
        if compiling() or not self._pushed:
            return
        thread = get_ident()
        innermost = self._pushed.pop(thread, None)
        if innermost is None:  # the block was entered while nobody listened, or on another thread
            return
        pushed, around = innermost
        if around is not None:
            self._pushed[thread] = around
        if pushed >= 0:
            ranges.pop()

    async def __aenter__(self) -> Annotation:
        if not compiling() and (ranges.listening() or uses.are_open() or self.name is None):
            uses.note_begin(self, ranges.range_start(self._ref or self._ensure_ref()))
        return self

    async def __aexit__(self, *_: object) -> None:
        if not compiling():
            ranges.range_end(uses.note_end(self))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if compiling():
            return function
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"annotate decorates functions, not {function!r}: decorate the class' methods")
        name = self.name if self.name is not None else getattr(function, "__qualname__", repr(function))
        return _wrap(function, self._ensure_ref(name))

    def _ensure_ref(self, name: str | None = None) -> Ref:
        name = name if name is not None else self.name
        if name is None:
            raise TypeError("annotate() in a with statement needs a name; without one it decorates a function")
        ref = ranges.ref_of(name, KIND_USER, self._color, self._category, self.args, self._payload)
        if name == self.name:
            self._ref = ref
        return ref


@overload
def annotate(name: Callable[P, R]) -> Callable[P, R]: ...
@overload
def annotate(
    name: str | None = None,
    color: int | str | None = None,
    category: str | None = None,
    payload: SupportsIndex | SupportsFloat | None = None,
) -> Annotation: ...
def annotate(
    name: str | Callable[P, R] | None = None,
    color: int | str | None = None,
    category: str | None = None,
    payload: SupportsIndex | SupportsFloat | None = None,
) -> Annotation | Callable[P, R]:
    """Put a range of your own around a `with` block or a function, for whichever tool is listening.

    Functions, coroutine functions, generators and async generators can be decorated. In a coroutine prefer `async
    with`, because a plain `with` that awaits inside is pushed on the thread's stack, where other tasks push as well.
    Without a tool or a session it costs nothing.

    Args:
        name: what the range is called; a decorator without a name takes the function's name.
        color: a name such as "green", "#rrggbb" or 0xAARRGGBB.
        category: a word by which tools group ranges.
        payload: a number of 64 bits that is shown with the range.
    """
    if compiling():
        if name is None or isinstance(name, str):
            return cast(Annotation, torchs_range(name or ""))
        return name
    if name is not None and not isinstance(name, str):
        return Annotation(None)(name)
    if category is not None and not isinstance(category, str):
        raise TypeError(f"a category is text, not {type(category).__name__}")
    # A shortcut for speed, because most annotations have only a name, and a program makes one for each block.
    kind = of_torch(Annotation) if "torch" in sys.modules else Annotation
    if color is None and payload is None:
        return kind(name, 0, category)
    return kind(name, color_of(color), category, None, payload_of(payload))


def record_function(name: str, args: str | None = None) -> Annotation:
    """Put a range around a `with` block or a function, as torch.profiler.record_function does, for every tool.

    Args:
        name: what the range is called.
        args: a text that is shown with the range.
    """
    if compiling():
        return cast(Annotation, torchs_range(name, args))
    return of_torch(Annotation)(ranges.text_of(name), args=None if args is None else str(args))


def mark(name: str) -> None:
    """Set a point in time on the timeline of whichever tool is listening.

    Args:
        name: what the point is called.
    """
    if compiling():
        return
    text = ranges.text_of(name)
    if ranges.listening():
        ranges.mark(ranges.ref_of(text))


annotate.__prepare_scriptable__ = for_torchscript("annotate")  # type: ignore[attr-defined]
record_function.__prepare_scriptable__ = for_torchscript("record_function")  # type: ignore[attr-defined]


def _again(*args: Any) -> Annotation:
    """Restores an unpickled annotation, with or without torch."""
    return of_torch(Annotation)(*args)


def color_of(color: int | str | None) -> int:
    """Returns the colour as ARGB. A colour without an alpha value is opaque."""
    if color is None:
        return 0
    if isinstance(color, str):
        named = COLORS.get(color.lower())
        try:
            number = named if named is not None else int(color.removeprefix("#"), 16)
        except ValueError:
            raise ValueError(f"unknown color {color!r}: use one of {', '.join(COLORS)}, or '#rrggbb'") from None
    else:
        number = operator.index(color)
    if not 0 <= number <= 0xFFFFFFFF:
        raise ValueError(f"color {number:#x} does not fit 0xAARRGGBB")
    return number if number > 0xFFFFFF else number | 0xFF000000


def _wrap(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, ref)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, ref)
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, ref)

    def push() -> int:
        return ranges.push(ref)

    # `plain` calls `push` and not ranges.push(ref), because torch.compile inspects all variables in a method's closure,
    # even unused ones, and `ref` is a C structure.
    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        if compiling() or not ranges.listening():
            return function(*args, **kwargs)
        pushed = push()
        try:
            return function(*args, **kwargs)
        finally:
            if pushed >= 0:
                ranges.pop()

    return plain


def _wrap_coroutine(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return await function(*args, **kwargs)
        started = ranges.range_start(ref)
        try:
            return await function(*args, **kwargs)
        finally:
            ranges.range_end(started)

    return coroutine


def _wrap_generator(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        if compiling():
            return (yield from function(*args, **kwargs))
        started = ranges.range_start(ref)
        try:
            return (yield from function(*args, **kwargs))
        finally:
            ranges.range_end(started)

    return generator


def _wrap_async_generator(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    @functools.wraps(function)
    async def generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        started = ranges.range_start(ref)
        inner = function(*args, **kwargs)
        try:
            # Async generators have no `yield from`. This loop does the same: values and errors go on to the inner
            # generator.
            value = await anext(inner)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001  # passed on to the inner generator
                    value = await inner.athrow(error)
                else:
                    value = await inner.asend(sent)
        except StopAsyncIteration:
            return
        finally:
            await inner.aclose()
            ranges.range_end(started)

    return generator
