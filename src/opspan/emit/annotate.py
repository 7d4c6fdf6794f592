"""annotate, mark, record_function: ranges of a user's own, to whatever listens. Not torch's ops: that is `sessions`.

Plain code is pushed and popped on its thread, so that it nests with the ops inside. A coroutine or a generator leaves
its thread in the middle and others run there meanwhile, so its range is started and ended, and belongs to no stack.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, ParamSpec, SupportsFloat, SupportsIndex, TypeVar, cast, overload

from opspan.emit import ranges
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
    """A range to enter with `with` or `async with`, any number of times, or to put on a function with `@`."""

    __slots__ = ("_category", "_color", "_detail", "_entered", "_name", "_payload", "_ref", "_started")

    def __init__(
        self,
        name: str | None,
        color: int = 0,
        category: str | None = None,
        detail: str | None = None,
        payload: int | float | None = None,
    ) -> None:
        self._name = name
        self._color = color
        self._category = category
        self._detail = detail
        self._payload = payload
        self._ref: Ref = None  # made when somebody listens
        self._entered: list[int] = []  # what each open push answered: one that reached nobody is not popped
        self._started: list[int] = []

    def __enter__(self) -> Annotation:
        # compiling first: what comes after it is nothing for torch.compile
        idle = ranges.compiling() or not ranges.listening()
        self._entered.append(-1 if idle and self._name is not None else ranges.push(self._ref or self._made()))
        return self

    def __exit__(self, *_: object) -> None:
        if self._entered.pop() >= 0:
            ranges.pop()

    async def __aenter__(self) -> Annotation:
        self._started.append(ranges.range_start(self._ref or self._made()))
        return self

    async def __aexit__(self, *_: object) -> None:
        ranges.range_end(self._started.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"annotate decorates functions, not {function!r}: decorate the class' methods")
        name = self._name if self._name is not None else getattr(function, "__qualname__", repr(function))
        return _wrap(function, self._made(name))

    def _made(self, name: str | None = None) -> Ref:
        name = name if name is not None else self._name
        if name is None:
            raise TypeError("annotate() in a with statement needs a name; without one it decorates a function")
        ref = ranges.ref_of(name, KIND_USER, self._color, self._category, self._detail, self._payload)
        if name == self._name:
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
    """A range named `name` around a `with` block or a function; without a name, the function's own.

    `color` is a name of `COLORS`, "#rrggbb" or 0xAARRGGBB; `payload` one number of 64 bits. Functions, coroutine
    functions, generators and async generators can be decorated. In a coroutine prefer `async with`: a plain `with`
    that awaits inside is pushed on the thread's stack, where other tasks push as well.
    """
    if name is not None and not isinstance(name, str):
        return Annotation(None)(name)
    return Annotation(name, color_of(color), category, None, _number(payload))


def record_function(name: str, args: str | None = None) -> Annotation:
    """torch.profiler.record_function, for every tool: a range around a `with` block or a function, `args` beside it."""
    return Annotation(name, detail=None if args is None else str(args))


def mark(name: str) -> None:
    """A moment, not a range."""
    ranges.mark(ranges.ref_of(name))


def color_of(color: int | str | None) -> int:
    """ARGB; a colour without transparency is made opaque."""
    if color is None:
        return 0
    if isinstance(color, str):
        named = COLORS.get(color.lower())
        try:
            number = named if named is not None else int(color.removeprefix("#"), 16)
        except ValueError:
            raise ValueError(f"unknown color {color!r}: use one of {', '.join(COLORS)}, or '#rrggbb'") from None
    else:
        number = color
    if not 0 <= number <= 0xFFFFFFFF:
        raise ValueError(f"color {number:#x} does not fit 0xAARRGGBB")
    return number if number > 0xFFFFFF else number | 0xFF000000


def _number(payload: SupportsIndex | SupportsFloat | None) -> int | float | None:
    if payload is None:
        return None
    if hasattr(payload, "__index__"):
        return operator.index(cast(SupportsIndex, payload))
    if not hasattr(payload, "__float__"):
        raise TypeError(f"a payload is one number, not {type(payload).__name__}")
    return float(payload)


def _wrap(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, ref)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, ref)
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, ref)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        pushed = ranges.push(ref)
        try:
            return function(*args, **kwargs)
        finally:
            if pushed >= 0:
                ranges.pop()

    return plain


def _wrap_coroutine(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        started = ranges.range_start(ref)
        try:
            return await function(*args, **kwargs)
        finally:
            ranges.range_end(started)

    return coroutine


def _wrap_generator(function: Callable[..., Any], ref: Ref) -> Callable[..., Any]:
    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
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
            # `yield from` by hand: async generators have none. What the user sends or throws goes to the inner one.
            value = await anext(inner)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001  # handed over, not handled
                    value = await inner.athrow(error)
                else:
                    value = await inner.asend(sent)
        except StopAsyncIteration:
            return
        finally:
            await inner.aclose()
            ranges.range_end(started)

    return generator
