"""Errors of opspan's own in what runs inside a program, as a hook does: kept from it, counted, said at the end.

Whatever torch or the interpreter calls of opspan's while a program runs goes through `call`, or hands its exceptions to
`keep`. Nothing of an error is held but its text: its traceback would keep the program's tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from opspan.emit import notices

T = TypeVar("T")

_LONGEST: Final = 200  # characters of an error's text

# Calls that Python's recursion limit left no room for. A counter that its users add to by hand: there is no room for
# a call of a function either.
too_deep = 0
_kept: dict[str, tuple[int, str]] = {}  # by what was going on: how many errors, and the first of them


def keep(doing: str, error: Exception) -> None:
    """`doing`: what failed, as in "labelling modules"."""
    global too_deep
    if isinstance(error, RecursionError):
        too_deep += 1
        return
    count, first = _kept.get(doing) or (0, "")
    _kept[doing] = count + 1, first or _text_of(error)


def call(doing: str, function: Callable[..., T], *args: Any) -> T | None:
    """Returns what it answers; None after an error."""
    global too_deep
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001  # the program has done nothing wrong
        try:
            keep(doing, error)
        except Exception:  # noqa: BLE001  # no room even for that
            too_deep += 1
        return None


def say(session: str, stacklevel: int) -> None:
    """One warning at the end of a session, where there were errors; then they are forgotten."""
    global too_deep
    said = []
    for doing in list(_kept):
        count, first = _kept.pop(doing)
        said.append(f"{count} {'error' if count == 1 else 'errors'} inside opspan while {doing}, the first: {first}")
    if too_deep:
        said.append(f"{too_deep} calls are not labelled: the program was as deep in calls as Python's recursion limit")
        too_deep = 0
    if said:
        notices.warn_at_end(
            f"{session}: {'; '.join(said)}. The program was not changed; labels may be missing", stacklevel + 1
        )


def _text_of(error: Exception) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # an exception of the program's own class
        text = ""
    return f"{type(error).__name__}{': ' * bool(text)}{text}"[:_LONGEST]
