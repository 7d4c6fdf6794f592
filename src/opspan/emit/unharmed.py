"""Keeps opspan's own errors away from the program. Counts the errors, and reports them at the end of a session.

While a program runs, torch and the interpreter call functions of opspan. Each of these functions is called through
`call`, or passes its exceptions to `keep`. Only the text of an error is stored, because its traceback would keep the
program's tensors alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from opspan.emit import notices

T = TypeVar("T")

_LONGEST: Final = 200  # the most characters of an error's text

# How many calls failed at Python's recursion limit. Callers of `keep` increase this number if `keep` itself fails at
# the limit.
too_deep = 0
_kept: dict[str, tuple[int, str]] = {}  # for each activity: the number of errors, and the text of the first error


def keep(doing: str, error: Exception) -> None:
    """Counts an error. `doing` names the failed activity, such as "labelling modules"."""
    global too_deep
    if isinstance(error, RecursionError):
        too_deep += 1
        return
    count, first = _kept.get(doing) or (0, "")
    _kept[doing] = count + 1, first or _text_of(error)


def call(doing: str, function: Callable[..., T], *args: Any) -> T | None:
    """Returns the function's result, or None after an error."""
    global too_deep
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
        try:
            keep(doing, error)
        except Exception:  # noqa: BLE001  # the stack has no room even for that
            too_deep += 1
        return None


def say(session: str, stacklevel: int) -> None:
    """Warns once at the end of a session if there were errors, and forgets them."""
    global too_deep
    parts = []
    for doing in list(_kept):
        count, first = _kept.pop(doing)
        parts.append(f"{count} {'error' if count == 1 else 'errors'} inside opspan while {doing}, the first: {first}")
    if too_deep:
        parts.append(f"{too_deep} calls are not labelled: the program was as deep in calls as Python's recursion limit")
        too_deep = 0
    if parts:
        notices.warn_at_end(
            f"{session}: {'; '.join(parts)}. The program was not changed; labels may be missing", stacklevel + 1
        )


def _text_of(error: Exception) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # the exception may be of the program's own class
        text = ""
    return f"{type(error).__name__}{': ' * bool(text)}{text}"[:_LONGEST]
