"""opspan run: capture a program and its children with no vendor tool."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

import click

from opspan.cli.options import capture_folder, labelling
from opspan.cli.printing import show
from opspan.errors import UsageError


@click.command("run", context_settings={"allow_interspersed_args": False})
@capture_folder
@labelling
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
def command(wanted: Path | None, tool: str | None, record_shapes: bool, modules: bool, cmd: tuple[str, ...]) -> int:
    """Run CMD and capture its NVTX and ITT ranges.

    The processes that CMD starts are captured as well. With --emit, every Python program among them that imports
    torch labels its ops, and no file has to be edited; without it, torch's ops are not labelled. Exits with CMD's exit
    code, or with 128 + n if signal n ended CMD.

    \b
    Example:
      opspan run --emit nvtx --record-shapes -o capture -- python train.py --epochs 3
      opspan run -- ./program-that-uses-nvtx
    """
    from opspan import libraries
    from opspan.emit import capturing, launch

    collectors = libraries.collectors()
    if not collectors.is_file():
        raise UsageError(f"{collectors} is missing: opspan's native part was not installed; pip install opspan")
    try:
        libraries.check_whole(collectors)
    except OSError as error:  # it would kill the program, not us
        raise UsageError(f"{collectors} cannot be given to a program ({error}): reinstall opspan") from error
    if (record_shapes or modules) and tool is None:
        raise UsageError("--record-shapes and --modules say what --emit labels: add --emit nvtx (or itt)")
    _name_other_tools(tool)
    emit = launch.Emit(tool, record_shapes, modules) if tool is not None else None
    ours = wanted is None or not wanted.exists()
    folder = capturing.make_folder(wanted)
    try:
        code = capturing.run(cmd, launch.environment(os.environ, collectors, folder, emit))
    finally:
        captured = capturing.look(folder)
        if ours and not captured.processes:
            with contextlib.suppress(OSError):  # CMD wrote something of its own there
                folder.rmdir()
    processes = "1 process" if captured.processes == 1 else f"{captured.processes} processes"
    if captured.ranges:
        show(f"Wrote {folder} ({processes}, {captured.bytes:,} bytes)\n", err=True)
    else:
        listened = f", and {processes} could be listened to ({folder})" if captured.processes else ""
        why = _why_nothing(tool, None if captured.processes else wanted, cmd)
        show(f"Captured nothing: {why}{listened}\n", err=True)
    return code


def _why_nothing(tool: str | None, free: Path | None, cmd: tuple[str, ...]) -> str:
    """`free`: the folder that was asked for, if it is still empty."""
    if tool is not None:
        return "no Python process imported torch and ran ops (or it runs with -S, -E or -I, which leaves --emit out)"
    output = [] if free is None else ["-o", str(free)]
    command = shlex.join(["opspan", "run", "--emit", "nvtx", *output, "--", *cmd])
    return f"no process made an NVTX or ITT call, and torch's ops make none by themselves; to label them: `{command}`"


def _name_other_tools(tool: str | None) -> None:
    """Who else wants to listen, and who of the two will."""
    from opspan.emit import injection

    if injection.nsys_is_profiling():
        left = "NVTX goes to nsys" if tool == "nvtx" else "NVTX goes to nsys, opspan captures ITT alone"
        show(f"note: nsys profiles this command and wins: {left}. Use one of the two\n", err=True)
        return
    for name in ("NVTX_INJECTION64_PATH", "INTEL_LIBITTNOTIFY64"):
        if os.environ.get(name):
            show(f"note: {name}={os.environ[name]} is set: another tool wants to listen, opspan goes first\n", err=True)
