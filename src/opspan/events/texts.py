"""Writes names, shapes, times, shares and sizes of memory as torch shows them. Defines Microseconds, the type of times.

torch stores a time as a float: nanoseconds divided by 1000. Sums of such floats have rounding errors, which depend on
the order of adding, and sometimes change the last digit in a table. A trace has whole nanoseconds. So a time from a
trace is a float that also stores its nanoseconds. Adding and subtracting such times is exact in any order, in our
classes and in torch's.
"""

from __future__ import annotations

from typing import Any

from opspan.labels import parse_sizes

NO_NAME = "(no name)"
_STEP = "ProfilerStep#"
SECOND_US = 1000.0 * 1000.0
MILLISECOND_US = 1000.0
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def shown_name(name: str | None) -> str:
    """Returns the name that tables show. All steps get the same name, so that they are averaged together. The attribute
    trace_name keeps their numbers."""
    if name is None:
        return NO_NAME
    return "ProfilerStep*" if name.startswith(_STEP) else name


def shapes_of(sizes: str | None) -> list[list[int]]:
    """Returns torch's input_shapes. A list of tensors becomes [] here, but not in structured_input_shapes."""
    return [[] if entry and isinstance(entry[0], list) else entry for entry in structured_of(sizes)]


def structured_of(sizes: str | None) -> list[Any]:
    if sizes is None:
        return []
    try:
        return parse_sizes(sizes)
    except ValueError:  # sizes that do not come from a label may be any text
        return []


class Microseconds(float):
    """A float of microseconds that also stores its nanoseconds."""

    __slots__ = ("ns",)
    ns: int

    def __new__(cls, ns: int) -> Microseconds:
        return microseconds(ns)

    def __getnewargs__(self) -> tuple[int]:
        return (self.ns,)

    def __add__(self, other: float) -> float:
        ns = _ns(other)
        return super().__add__(other) if ns is None else microseconds(self.ns + ns)

    __radd__ = __add__

    def __sub__(self, other: float) -> float:
        ns = _ns(other)
        return super().__sub__(other) if ns is None else microseconds(self.ns - ns)

    def __rsub__(self, other: float) -> float:
        ns = _ns(other)
        return super().__rsub__(other) if ns is None else microseconds(ns - self.ns)


def microseconds(ns: int) -> Microseconds:
    """Returns Microseconds(ns), in less than half the time that calling the class takes."""
    time = _new(Microseconds, ns / 1000)
    time.ns = ns
    return time


_new = float.__new__


def _ns(time: object) -> int | None:
    if isinstance(time, Microseconds):
        return time.ns
    return time * 1000 if isinstance(time, int) else None


def format_time(time_us: float) -> str:
    """Formats a time in s, ms or us: the largest of these in which the time is at least 1, else us."""
    if time_us >= SECOND_US:
        return f"{time_us / SECOND_US:.3f}s"
    if time_us >= MILLISECOND_US:
        return f"{time_us / MILLISECOND_US:.3f}ms"
    return f"{time_us:.3f}us"


def format_time_in(time_us: float, unit: str | None) -> str:
    """Formats a time in the unit s, ms or us. For any other unit, `format_time` chooses one."""
    if unit == "s":
        return f"{time_us / SECOND_US:.3f}s"
    if unit == "ms":
        return f"{time_us / MILLISECOND_US:.3f}ms"
    return f"{time_us:.3f}us" if unit == "us" else format_time(time_us)


def format_share(time_us: float, total_us: float) -> str:
    """Formats a share of a total in per cent. Returns "-" if the total is 0; torch returns NaN or raises an error."""
    return "-" if total_us == 0 else f"{time_us * 100.0 / total_us:.2f}%"


def format_memory(count: float) -> str:
    """Formats bytes in the largest unit in which they are at least 1, for example 1.50 KB."""
    if abs(count) >= GIB:
        return f"{count * 1.0 / GIB:.2f} GB"
    if abs(count) >= MIB:
        return f"{count * 1.0 / MIB:.2f} MB"
    if abs(count) >= KIB:
        return f"{count * 1.0 / KIB:.2f} KB"
    return f"{count} B"
