"""A property that is computed on its first use, and only once even if several threads use it."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from opspan import forked

if TYPE_CHECKING:
    from typing_extensions import Self

T_co = TypeVar("T_co", covariant=True)


class shared_property(cached_property[T_co]):  # noqa: N801  # stands beside property
    """A cached property. If two threads need it at once, the second waits for the first.

    cached_property does not do this. Before Python 3.12 it had one lock for all objects of a class. Since then it has
    no lock, and two threads may compute the same value twice."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T_co: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T_co:
        if instance is None:
            return self
        values, name = instance.__dict__, self.func.__name__
        if forked.is_cut_off() and name not in values:
            values[name] = forked.ask(getattr, instance, name)
        lock = values.setdefault(f"{name} (lock)", threading.RLock())
        with lock:
            if name not in values:
                values[name] = self.func(instance)
        values.pop(f"{name} (lock)", None)
        value: T_co = values[name]
        return value
