"""Defines cached_frame, a property whose data frame is computed when it is first read. If polars cannot run in this
process, another process computes the frame (forked.py)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from opspan import forked

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class cached_frame(cached_property[T]):  # noqa: N801  # named like cached_property
    """A cached property that holds a data frame. If another process must compute the frame, that process computes all
    cached frames of the object at once, because a program usually reads several."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        if forked.is_cut_off():
            vars(instance).update(forked.ask(all_frames, instance))
            value: T = vars(instance)[self.func.__name__]
            return value
        return super().__get__(instance, owner)


def all_frames(owner: object) -> dict[str, Any]:
    """Returns the frames of an object by name."""
    members = {name: member for kind in type(owner).__mro__ for name, member in vars(kind).items()}
    return {name: getattr(owner, name) for name, member in members.items() if isinstance(member, cached_frame)}
