"""annotate and mark: a user's own ranges, for every tool that listens. `sessions` labels torch's ops.

A range around plain code is pushed and popped on its thread, so that it nests with the ops inside. A coroutine or a
generator may pause while other code runs on its thread. So the range around it is not on the thread's stack. This range
has an id, and is ended by this id.

torch.compile may trace every function that user code calls. So these functions call `compiling()` first, and return at
once while torch.compile traces them. Only wrappers of async generators do not call `compiling()`.
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


def _pop_one(_: int) -> None:
    ranges.pop()


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
        self._ref: Ref = None  # created at the first use that needs it
        # For each thread, a linked list of its open pushes: the result of the innermost push, and the rest of the list.
        # A thread without an entry has pushed nothing, and pops nothing.
        self._pushed: dict[int, tuple[Any, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy or pickle gets neither the open ranges, which only the original ends, nor the C structure in `_ref`,
        # which cannot be copied.
        return _again, (self.name, self._color, self._category, self.args, self._payload)

    # The subclass record_function overrides these five with methods. Plain functions are the fastest here.
    _listening: Callable[[], object] = staticmethod(ranges.listening)
    _push: Callable[[Ref], Any] = staticmethod(ranges.push)  # returns -1 if nobody listens
    _pop: Callable[[Any], None] = staticmethod(_pop_one)
    _start: Callable[[Ref], Any] = staticmethod(ranges.range_start)
    _finish: Callable[[Any], None] = staticmethod(ranges.range_end)

    def __enter__(self) -> Annotation:
        if compiling():
            return self
        # A block inside an open block needs an entry even if nobody listens any more. Otherwise the end of the inner
        # block would pop the range of the outer block.
        if self._listening() or self._pushed or self.name is None:
            pushed, thread = self._push(self._ref or self._ensure_ref()), get_ident()
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
        if pushed != -1:
            self._pop(pushed)

    async def __aenter__(self) -> Annotation:
        if not compiling() and (self._listening() or uses.are_open() or self.name is None):
            uses.note_begin(self, self._start(self._ref or self._ensure_ref()))
        return self

    async def __aexit__(self, *_: object) -> None:
        if not compiling():
            self._finish(uses.note_end(self))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if compiling():
            return function
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"annotate decorates functions, not {function!r}: decorate the class' methods")
        name = self.name if self.name is not None else getattr(function, "__qualname__", repr(function))
        return _wrap(function, self, self._ensure_ref(name))

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
    with`. A plain `with` pushes its range on the thread's stack, and other tasks may push there during an `await`.
    Without a tool or a session, a range costs almost nothing.

    Args:
        name: what the range is called; a decorator without a name takes the function's name.
        color: either "#rrggbb", or 0xAARRGGBB, or a name such as "green".
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
    # For speed, color_of and payload_of are skipped if they are not needed: a program may create an annotation for each
    # block, and most annotations have only a name.
    kind = of_torch(Annotation) if "torch" in sys.modules else Annotation
    if color is None and payload is None:
        return kind(name, 0, category)
    return kind(name, color_of(color), category, None, payload_of(payload))


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


def _again(*args: Any) -> Annotation:
    """Creates a copied or unpickled annotation. Its class has torch's class as a base only if this process has imported
    torch."""
    return of_torch(Annotation)(*args)


def color_of(color: int | str | None) -> int:
    """Returns the colour as ARGB; 0 means no colour. A colour without an alpha value is opaque."""
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


def _wrap(function: Callable[..., Any], annotation: Annotation, ref: Ref) -> Callable[..., Any]:
    # The wrappers below call these functions instead of holding `ref`. torch.compile inspects all variables in the
    # closure of a wrapped method, even unused ones, and cannot inspect a C structure such as `ref`.
    def push() -> Any:
        return annotation._push(ref)

    def start() -> Any:
        return annotation._start(ref)

    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, start, annotation._finish)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, start, annotation._finish)
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, start, annotation._finish)

    listening, pop = annotation._listening, annotation._pop

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        if compiling() or not listening():
            return function(*args, **kwargs)
        pushed = push()
        try:
            return function(*args, **kwargs)
        finally:
            if pushed != -1:
                pop(pushed)

    return plain


def _wrap_coroutine(
    function: Callable[..., Any], start: Callable[[], Any], finish: Callable[[Any], None]
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return await function(*args, **kwargs)
        started = start()
        try:
            return await function(*args, **kwargs)
        finally:
            finish(started)

    return coroutine


def _wrap_generator(
    function: Callable[..., Any], start: Callable[[], Any], finish: Callable[[Any], None]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        if compiling():
            return (yield from function(*args, **kwargs))
        started = start()
        try:
            return (yield from function(*args, **kwargs))
        finally:
            finish(started)

    return generator


def _wrap_async_generator(
    function: Callable[..., Any], start: Callable[[], Any], finish: Callable[[Any], None]
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        started = start()
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
            finish(started)

    return generator
