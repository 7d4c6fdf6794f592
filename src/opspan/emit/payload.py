"""A range's payload: one number of 64 bits, taken when the annotation is made, whether or not anybody listens.

What is no number is refused there and then. A number that is not here yet is left out, and its range goes without it:
of a tensor on a device (reading it would make the program wait for the device), of one that has no value (meta, fake,
within vmap), of a size that is being traced.
"""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any, Final

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1

_warned = False


def payload_of(given: Any) -> int | float | None:
    """The number that the C form of a range takes, None for none."""
    if given is None or type(given) is float:
        return given
    if type(given) is not int:
        number = _number(given)
        if not isinstance(number, int):
            return number
        given = number
    if not _SMALLEST <= given <= _LARGEST:
        raise ValueError(f"a payload is one number of 64 bits, {_short(given)} has more")
    return int(given)


def _number(given: Any) -> int | float | None:
    if _is_of_torch(given):
        return _from_torch(given)
    # numpy's numbers, and other libraries' that have the method: the one way that gives an int, a float or a bool as
    # is meant. `__index__` and `__float__` are there in arrays of any size, and in bools of numpy's that refuse both.
    if callable(getattr(type(given), "item", None)):
        if getattr(given, "size", 1) != 1:
            raise TypeError(f"a payload is one number, not {given.size} of them")
        given = given.item()
    if hasattr(type(given), "__index__"):
        return operator.index(given)
    if not hasattr(type(given), "__float__"):
        raise TypeError(f"a payload is one number, not {type(given).__name__}")
    try:
        return float(given)
    except OverflowError as error:
        raise ValueError(f"a payload is one number of 64 bits: {error}") from error


def _is_of_torch(given: Any) -> bool:
    """A tensor, or what stands for a number while torch traces. Whoever has one has imported torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return False
    return isinstance(given, torch.Tensor) or type(given).__module__.partition(".")[0] == "torch"


def _from_torch(given: Any) -> int | float | None:
    import torch

    if not isinstance(given, torch.Tensor):
        return None
    # A subclass may do anything when it is read: a distributed one would have every process wait for the others.
    if type(given) not in (torch.Tensor, torch.nn.Parameter) or torch.jit.is_tracing():
        return None
    try:
        if given.numel() != 1:
            raise TypeError(f"a payload is one number, not a tensor of {given.numel()}")
        if given.device.type != "cpu":
            _warn_of_device(given)
            return None
        number: int | float | complex = given.item()
    except RuntimeError:  # it has no value
        return None
    if isinstance(number, complex):
        raise TypeError("a payload is one number, not a complex one")
    return number


def _warn_of_device(given: Any) -> None:
    global _warned
    if given.device.type != "meta" and not _warned:
        _warned = True
        warnings.warn(
            f"annotate: a payload that is a tensor on {given.device} is left out, since reading it waits for the "
            "device: pass payload=tensor.item() if that is meant",
            stacklevel=6,
        )


def _short(number: int) -> str:
    # Thousands of digits would not even be turned into text.
    return str(number) if abs(number) < 10**30 else f"one of {number.bit_length()} bits"
