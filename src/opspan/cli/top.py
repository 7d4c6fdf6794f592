"""Implements `opspan top`, which shows the ops, modules or lines that take the time in a process now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from opspan.cli.printing import show
from opspan.errors import OpspanError, UsageError
from opspan.printable import path_text, plural

if TYPE_CHECKING:
    from opspan.app.top import Recorder, Wish
    from opspan.app.top_rows import Snapshot

_KEYS = "q quit   o ops   m modules   l lines   s self or total   space pause"
_BY = {"o": "ops", "m": "modules", "l": "lines"}


@click.command("top", context_settings={"allow_interspersed_args": True})
@click.option(
    "--by", type=click.Choice(["ops", "modules", "lines"]), default="ops", show_default=True, help="What each row is."
)
@click.option(
    "--total", is_flag=True, help="Order by total time, which includes all that runs inside, instead of self time."
)
@click.option(
    "--every",
    metavar="S",
    type=click.FloatRange(0, 3600, min_open=True),
    default=1.0,
    show_default=True,
    help="Record for S seconds at a time.",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="Show N recordings, then end.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    help="Rows to print where the output is not a terminal.",
)
@click.argument("what", metavar="PID | -- CMD", nargs=-1, required=True, type=click.UNPROCESSED)
def command(by: str, total: bool, every: float, count: int | None, limit: int, what: tuple[str, ...]) -> int:
    """Show the ops, modules or lines that take the time in process PID now, live in the terminal.

    PID must be made ready as for `opspan attach`. With CMD in place of PID, opspan starts CMD ready. The output of CMD
    goes to a new file opspan-top-N.log, and CMD goes on when top ends. The keys are shown below the table. If the
    output is not a terminal, a table is printed for each recording. Recording slows down the process, except while top
    is paused.

    \b
    Example:
      opspan top 4242
      opspan top --by modules --total -- python train.py
      opspan top 4242 --count 1 --every 5 > now.txt
    """
    from opspan.app.top import Recorder, Wish, start

    pid, log = (int(what[0]), None) if len(what) == 1 and what[0].isdecimal() else start(what)
    wish = Wish(by, total)
    recorder = Recorder(pid, every, wish)
    try:
        if all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
            ended = _live(recorder, wish, pid, count)
        else:
            ended = _plain(recorder, wish, pid, count, limit)
    finally:
        recorder.close()
    if ended is not None:
        show(f"{ended}\n", err=True)
    if log is not None:
        show(f"Process {pid} writes to {path_text(log)}\n", err=True)
    return 0


def _live(recorder: Recorder, wish: Wish, pid: int, count: int | None) -> str | None:
    """Shows recordings until the user quits, the process ends, or `count` recordings were shown. Returns a sentence if
    the process ended, else None."""
    from opspan.cli import live

    shown: Snapshot | None = None
    seen = 0
    with live.screen() as screen:
        while count is None or seen < count:
            title, rows = _title(shown, wish, pid), _rows(shown, wish, screen.rows)
            columns: tuple[str, ...] = _COLUMNS
            if screen.is_narrow:
                places = (2 if wish.by_total else 0, 1, 4)
                columns, *rows = (tuple(row[place] for place in places) for row in (columns, *rows))
            screen.show(title, columns, rows, _KEYS)
            pressed = live.key(0.1)
            if pressed in ("q", "\x03", "\x04"):
                return None
            wish.by = _BY.get(pressed, wish.by)
            wish.by_total ^= pressed == "s"
            wish.is_paused ^= pressed == " "
            try:
                new = recorder.next(0)
            except OpspanError as error:
                return _ended(pid, error, seen, count)
            if new is not None:
                shown, seen = new, seen + 1
    return None


def _plain(recorder: Recorder, wish: Wish, pid: int, count: int | None, limit: int) -> str | None:
    seen = 0
    while count is None or seen < count:
        try:
            shown = recorder.next(1)
        except OpspanError as error:
            return _ended(pid, error, seen, count)
        if shown is not None:
            seen += 1
            lines = [_title(shown, wish, pid), *_align(_rows(shown, wish, limit))]
            show("\n".join(lines) + "\n\n")
    return None


def _ended(pid: int, error: OpspanError, seen: int, count: int | None) -> str:
    """Returns a sentence if the process has ended after some recordings and the user asked for no `count` of
    recordings. Otherwise raises an error."""
    from opspan.app import processes

    if not seen or processes.listens_at(pid) is not None:  # a process that still listens has not ended
        raise error
    if count is not None:
        raise UsageError(f"process {pid} ended after {seen} of {count} recordings")
    return f"process {pid} has ended"


_COLUMNS = ("Self", "%", "Total", "Count", "Name")


def _title(shown: Snapshot | None, wish: Wish, pid: int) -> str:
    from opspan.views.fields import time_text

    head = f"opspan top: process {pid}, {wish.by} by {'total' if wish.by_total else 'self'}"
    if wish.is_paused:
        head += ", paused"
    if shown is None or shown.by != wish.by:
        return f"{head}, recording ..."
    head += ", time of devices" if shown.is_device else ""
    if shown.step_ns is not None:
        head += f", {plural(shown.steps, 'step')} of {time_text(round(shown.step_ns))}"
    return head


def _rows(shown: Snapshot | None, wish: Wish, limit: int) -> list[tuple[str, ...]]:
    from opspan.app.top_rows import sort_rows
    from opspan.views.fields import time_text

    if shown is None or shown.by != wish.by:
        return []
    whole = sum(row.self_ns for row in shown.rows) or 1
    return [
        (
            time_text(row.self_ns),
            f"{100 * row.ns(wish.by_total) / whole:.1f}",
            time_text(row.total_ns),
            f"{row.count:,}",
            row.name,
        )
        for row in sort_rows(shown, wish.by_total)[:limit]
    ]


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(_COLUMNS, *rows, strict=True)][:-1]
    return [
        "  ".join([*(f"{text:>{width}}" for text, width in zip(figures, widths, strict=True)), name])
        for *figures, name in (_COLUMNS, *rows)
    ]
