"""Implements `opspan attach`, which records a process that is already running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.cli.options import capture_folder
from opspan.cli.printing import show
from opspan.errors import UsageError
from opspan.printable import path_text, plural, shell_path

if TYPE_CHECKING:
    from opspan.app.attaching import Attachment

_STEPS, _SECONDS = 3, 60.0


@click.command("attach")
@click.argument("pid", metavar="PID", type=click.IntRange(min=1))
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    help=f"Record N whole steps, as the optimizer counts them.  [default: {_STEPS}, without --seconds]",
)
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(0, 86_400, min_open=True),
    help=f"Record for S seconds; with --steps, at most S seconds.  [default: {_SECONDS:.0f}, at most]",
)
@capture_folder
@click.option(
    "--children",
    is_flag=True,
    help="Record all that listen among PID and the processes below it, such as the ranks of a torchrun.",
)
@click.option("--shapes", is_flag=True, help="Record the sizes of each op's inputs.")
@click.option("--stacks", is_flag=True, help="Record the Python functions that call each op.")
@click.option("--memory", is_flag=True, help="Record the host memory that torch takes and gives back.")
@click.option("--modules", is_flag=True, help="Record each call of an nn.Module as well.")
@click.option("--no-devices", is_flag=True, help="Leave out what runs on devices; recording that takes time to start.")
def command(
    pid: int,
    steps: int | None,
    seconds: float | None,
    wanted: Path | None,
    children: bool,
    shapes: bool,
    stacks: bool,
    memory: bool,
    modules: bool,
    no_devices: bool,
) -> int:
    """Record what process PID does now, for some steps or seconds, while it runs.

    PID was made ready by `opspan run --idle`, opspan.listen() or the variable OPSPAN_LISTEN=1. On Python 3.14 and
    newer any process of that Python can be reached. Ctrl-C ends the recording early, and keeps what was recorded.

    \b
    Example:
      opspan run --idle -- python train.py &
      opspan attach $! --steps 3 -o capture
      opspan attach --children $(pgrep -o torchrun) --seconds 5 --shapes
    """
    from opspan.app import attaching, capturing

    pids = attaching.listening(pid) if children else [pid]
    if not pids:
        raise UsageError(f"no process at or below {pid} listens: start it with `opspan run --idle -- ...`")
    count = steps if steps is not None else 0 if seconds is not None else _STEPS
    most = seconds if seconds is not None else _SECONDS
    with attaching.connected(pids) as all_, capturing.capture_folder(wanted) as folder:
        request = attaching.Request(str(folder), count, most, shapes, stacks, memory, modules, not no_devices)
        attaching.ask(all_, request)
        captured = capturing.look(folder)
    for note in _notes(all_):
        show(f"note: {note}\n", err=True)
    failed = [str(one.error) for one in all_ if one.error is not None]
    wanted_text = f"{count} steps" if count else f"{most:g} s"
    failed += [
        f"process {one.pid} ended before {wanted_text} were recorded: what was recorded until then is kept"
        for one in all_
        if one.answer is not None and one.answer.ended
    ]
    for error in failed:
        show(f"error: {error}\n", err=True)
    if captured.processes:
        processes = plural(captured.processes, "process", "processes")
        recorded = [one.answer.steps for one in all_ if one.answer is not None]
        whole = f", {plural(min(recorded), 'step')}" if count and recorded else ""
        show(f"Wrote {path_text(folder)} ({processes}{whole}, {captured.bytes:,} bytes)\n")
        show(f"Next: opspan summary {shell_path(wanted or folder.name)}\n")
    return 2 if failed else 0


def _notes(all_: list[Attachment]) -> list[str]:
    """Returns the notes from the replies of all processes. Leaves out repeated sentences."""
    notes = [
        (f"process {one.pid}: " if len(all_) > 1 else "", note)
        for one in all_
        if one.answer
        for note in one.answer.notes
    ]
    return list(dict.fromkeys(who + note for who, note in notes))
