"""A range's payload is one number of 64 bits. It is read when the annotation is made, even if nobody listens.

A payload that is not a number raises an error at once. A number that is not available yet is left out, and the range
has no payload. Examples are a tensor on a device (reading it would make the program wait), a tensor without a value
(meta, fake, within vmap), and a size that is being traced.
"""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any, Final

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1

_warned = False


def payload_of(value: Any) -> int | float | None:
    """Returns the number for the C form of a range, or None if there is no number."""
    if value is None or type(value) is float:
        return value
    if type(value) is not int:
        number = _number(value)
        if not isinstance(number, int):
            return number
        value = number
    if not _SMALLEST <= value <= _LARGEST:
        raise ValueError(f"a payload is one number of 64 bits, {_short(value)} has more")
    return int(value)


def _number(value: Any) -> int | float | None:
    if _is_of_torch(value):
        return _from_torch(value)
    # `item()` of numpy and other libraries returns an int, a float or a bool. `__index__` and `__float__` do not
    # suffice: arrays of any size have these methods, and numpy's bools have no `__index__`.
    if callable(getattr(type(value), "item", None)):
        if getattr(value, "size", 1) != 1:
            raise TypeError(f"a payload is one number, not {value.size} of them")
        value = value.item()
    if hasattr(type(value), "__index__"):
        return operator.index(value)
    if not hasattr(type(value), "__float__"):
        raise TypeError(f"a payload is one number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"a payload is one number of 64 bits: {error}") from error


def _is_of_torch(value: Any) -> bool:
    """Returns whether the value is a tensor, or a traced number. If so, torch is imported already."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and (isinstance(value, tensor) or type(value).__module__.partition(".")[0] == "torch")


def _from_torch(value: Any) -> int | float | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    # Reading a tensor of a subclass may run any code. A distributed tensor, for instance, would make every process wait
    # for the other processes.
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or torch.jit.is_tracing():
        return None
    try:
        if value.numel() != 1:
            raise TypeError(f"a payload is one number, not a tensor of {value.numel()}")
        if value.device.type != "cpu":
            _warn_of_device(value)
            return None
        number: int | float | complex = value.item()
    except RuntimeError:  # the tensor has no value
        return None
    if isinstance(number, complex):
        raise TypeError("a payload is one number, not a complex one")
    return number


def _warn_of_device(value: Any) -> None:
    global _warned
    if value.device.type != "meta" and not _warned:
        _warned = True
        warnings.warn(
            f"annotate: a payload that is a tensor on {value.device} is left out, since reading it waits for the "
            "device: pass payload=tensor.item() if that is meant",
            stacklevel=6,
        )


def _short(number: int) -> str:
    # Python raises an error for the text of a number with thousands of digits.
    return str(number) if abs(number) < 10**30 else f"one of {number.bit_length()} bits"
