"""Shows a live table on the terminal, and reads the keys that the user presses.

At the end of the `with` block of `screen`, even after an error, the terminal gets its mode, cursor and text back.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from opspan.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_TITLE_AND_KEYS = 5  # the number of lines that are not rows: the title, the columns' titles, a rule and the keys


class Screen:
    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def rows(self) -> int:
        return max(self._live.console.height - _TITLE_AND_KEYS, 1)

    @property
    def is_narrow(self) -> bool:
        """True if the screen is too narrow to show a name beside all numbers."""
        return self._live.console.width < 60

    def show(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], keys: str) -> None:
        self._live.update(_layout(title, columns, rows, keys), refresh=True)


@contextlib.contextmanager
def screen() -> Iterator[Screen]:
    from rich.console import Console
    from rich.live import Live

    before = termios.tcgetattr(sys.stdin)
    handlers = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setcbreak(sys.stdin)
        with Live(console=Console(), screen=True, auto_refresh=False) as live:
            yield Screen(live)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def key(seconds: float) -> str:
    """Returns the key that is pressed within this time, "" if no key is pressed, or "q" if the terminal is gone."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return ""
    try:
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"
    except OSError:
        return "q"


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _layout(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], keys: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for number, column in enumerate(columns):
        is_name = number == len(columns) - 1
        justify: Literal["left", "right"] = "left" if is_name else "right"
        table.add_column(column, justify=justify, no_wrap=True, overflow="ellipsis", ratio=1 if is_name else None)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    heading = Text(printable(title), style="bold", no_wrap=True, overflow="ellipsis")
    return Group(heading, Text(), table, Text(keys, style="dim"))
