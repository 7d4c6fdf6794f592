"""made: a frame that is worked out when it is first asked for, in another process where that has to be (forked.py)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from opspan import forked

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class made(cached_property[T]):  # noqa: N801  # stands beside cached_property
    """Another process makes all of them at once, as whoever asks for one soon asks for the next."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        if forked.is_cut_off():
            vars(instance).update(forked.ask(all_made, instance))
            value: T = vars(instance)[self.func.__name__]
            return value
        return super().__get__(instance, owner)


def all_made(of: object) -> dict[str, Any]:
    """By name, each of an object."""
    members = {name: member for kind in type(of).__mro__ for name, member in vars(kind).items()}
    return {name: getattr(of, name) for name, member in members.items() if isinstance(member, made)}
