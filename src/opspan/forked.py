"""Makes reading work in a process that was forked after polars had started its threads.

A forked process has only one thread, and most of polars would wait forever for the missing threads. In such a
process, functions that are decorated with `elsewhere` run in a new process, which gets the arguments and returns the
results.
The decorator is on the functions that users call, not on inner ones, so that little data is transferred. In other
processes the decorator costs one comparison per call. The properties `shared_property` and `cached_frame` do the same
for values that an object computes once.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from opspan.errors import OpspanError

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound="Callable[..., Any]")
C = TypeVar("C", bound=type)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PATIENCE_S = 1.0  # maximum number of seconds to wait until polars' new threads have names

# Calls that the new process must repeat before it runs a function, such as the registration of formulas.
carried: dict[str, tuple[Callable[..., Any], Any]] = {}
_has_started = False  # True if polars had threads at an earlier fork; a forked process inherits the value
_is_cut_off = False
_answers = False
_was_before_us = "polars" in sys.modules  # if True, a fork may have happened before this module could watch forks


def is_cut_off() -> bool:
    """Returns whether this process cannot use polars, because it was forked after polars had started its threads."""
    return _is_cut_off or (_was_before_us and not _has_threads())


def answers() -> bool:
    """Returns whether this process was started to run functions for a process that cannot use polars."""
    return _answers


def elsewhere(function: F) -> F:
    """Decorates a function so that it runs in a new process if polars cannot be used in this one. The function must be
    at the top level of its module."""

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        return ask(run, *arguments, **named) if is_cut_off() else function(*arguments, **named)

    return cast("F", run)


def methods_elsewhere(kind: C) -> C:
    """Decorates the public methods and properties of a class as `elsewhere` does, and the methods that show an object
    (__repr__, _repr_html_). Does not decorate class methods and static methods."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in ("__repr__", "_repr_html_"):
            continue
        if isinstance(member, property) and member.fget is not None:
            setattr(kind, name, property(_property(name, member.fget), doc=member.__doc__))
        elif callable(member) and not isinstance(member, type | classmethod | staticmethod):
            setattr(kind, name, _method(name, member))
    return kind


def method_elsewhere(function: F) -> F:
    """Decorates one method of a class as `elsewhere` does."""
    return cast("F", _method(function.__name__, function))


class shared_property(cached_property[T_co]):  # noqa: N801  # stands beside property
    """A cached property. If two threads need the value at once, the second thread waits for the first.

    cached_property differs from this. Before Python 3.12 it had one lock for all objects of a class. Since then it has
    no lock, and two threads may compute the same value twice.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T_co: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T_co:
        if instance is None:
            return self
        values, name = instance.__dict__, self.func.__name__
        if is_cut_off() and name not in values:
            values[name] = ask(getattr, instance, name)
        lock = values.setdefault(f"{name} (lock)", threading.RLock())
        with lock:
            if name not in values:
                values[name] = self.func(instance)
        values.pop(f"{name} (lock)", None)
        value: T_co = values[name]
        return value


class cached_frame(cached_property[T]):  # noqa: N801  # named like cached_property
    """A cached property that holds a data frame. If another process must compute the frame, it computes all cached
    frames of the object at once, because a program usually reads several of them."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        if is_cut_off():
            vars(instance).update(ask(all_frames, instance))
            value: T = vars(instance)[self.func.__name__]
            return value
        return super().__get__(instance, owner)


def all_frames(owner: object) -> dict[str, Any]:
    """Returns the cached frames of an object by name."""
    members = {name: member for kind in type(owner).__mro__ for name, member in vars(kind).items()}
    return {name: getattr(owner, name) for name, member in members.items() if isinstance(member, cached_frame)}


def ask(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls the function in a new process. Returns the function's result or raises its error, and repeats its
    warnings."""
    from opspan.workers import Worker

    try:
        job = pickle.dumps((list(carried.values()), function, arguments, named), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise _impossible(f"what it needs cannot be handed to another process ({error})") from error
    worker = None
    try:
        worker = Worker(1)
        answer, failed = worker.ask((_answer, (job,), {}))
    except (EOFError, OSError) as gone:
        raise _impossible(f"no other process could read for it: {worker.why() if worker else gone}") from gone
    finally:
        if worker is not None:
            worker.kill()
            worker.end()
    if failed is not None:
        raise _impossible(f"the process that read for it failed: {failed}")
    result, raised, caught = pickle.loads(answer)
    for message, category in caught:
        warnings.warn(message, category, stacklevel=3)
    if raised is not None:
        raise raised
    return result


def refuse(what: str) -> None:
    """Raises an error if polars cannot be used in this process, because a call of polars would wait forever."""
    if is_cut_off():
        raise _impossible(f"{what} has no way around that")


def _answer(job: bytes) -> bytes:
    """Runs in the new process. Calls the pickled function, and returns the pickled result, error and warnings."""
    global _answers
    _answers = True
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = _called(job)
        except Exception as raised:  # noqa: BLE001  the caller raises it
            error = raised
    messages = [(str(one.message), one.category) for one in caught]
    return pickle.dumps((result, error, messages), protocol=pickle.HIGHEST_PROTOCOL)


def _called(job: bytes) -> Any:
    try:
        first, function, arguments, named = pickle.loads(job)
    except Exception as error:
        raise _impossible(f"what it needs cannot be handed to another process ({error})") from error
    for call, its in first:
        call(*its)
    return function(*arguments, **named)


def _impossible(why: str) -> OpspanError:
    return OpspanError(
        f"this process was forked after polars had started its threads, which a fork does not have, and {why}: read in "
        "the parent, or start the process with multiprocessing's 'spawn' or 'forkserver'"
    )


def _method(name: str, function: Any) -> Any:
    @wraps(function)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_cut_off():
            return ask(_call, self, name, *arguments, **named)
        return function(self, *arguments, **named)

    return run


def _property(name: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(read)
    def run(self: Any) -> Any:
        return ask(getattr, self, name) if is_cut_off() else read(self)

    return run


def _call(of: Any, name: str, *arguments: Any, **named: Any) -> Any:
    return getattr(of, name)(*arguments, **named)


@cache
def _has_threads() -> bool:
    """Returns whether polars' threads run in this process. First makes polars start its threads, if it has
    none."""
    import polars as pl

    pl.thread_pool_size()
    ends = time.monotonic() + _PATIENCE_S
    while not _threads_run():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def _threads_run() -> bool:
    """Returns whether this process has threads with polars' names, or True if the names cannot be read."""
    name = f"{os.environ.get('POLARS_THREAD_NAME', 'polars')}-"
    try:
        tasks = os.listdir("/proc/self/task")  # noqa: PTH208  # the quickest way, because this runs before every fork
    except OSError:
        return True
    for task in tasks:
        with suppress(OSError), open(f"/proc/self/task/{task}/comm") as comm:  # noqa: PTH123
            before, is_named, number = comm.read().rstrip().partition(name)
            # Counts only threads with a number after the name. A forked process does not need polars' other threads.
            if is_named and not before and number.isdigit():
                return True
    return False


def _before_fork() -> None:
    global _has_started
    _has_started = _has_started or ("polars" in sys.modules and _threads_run())


def _in_child() -> None:
    global _is_cut_off
    _is_cut_off = _is_cut_off or _has_started


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
