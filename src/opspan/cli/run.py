"""opspan run: capture a program and its children with no vendor tool."""

from __future__ import annotations

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
@click.option("--idle", is_flag=True, help="Capture nothing: only make CMD ready for `opspan attach` and `opspan top`.")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    wanted: Path | None, tool: str | None, record_shapes: bool, modules: bool, idle: bool, cmd: tuple[str, ...]
) -> int:
    """Run CMD and capture its NVTX and ITT ranges.

    The processes that CMD starts are captured as well. With --emit, every Python program among them that imports
    torch labels its ops, and no file has to be edited; without it, torch's ops are not labelled. Exits with CMD's exit
    code, or with 128 + n if signal n ended CMD.

    With --idle, CMD runs as it would without opspan, in place of this process. Every Python program below it that
    imports torch listens meanwhile: `opspan attach` has it record.

    \b
    Example:
      opspan run --emit nvtx --record-shapes -o capture -- python train.py --epochs 3
      opspan run -- ./program-that-uses-nvtx
      opspan run --idle -- torchrun --nproc-per-node 8 train.py
    """
    from opspan.app import capturing, launch

    if idle:
        if wanted is not None or tool is not None or record_shapes or modules:
            raise UsageError("--idle captures nothing: what to record, and where to, is said to `opspan attach`")
        capturing.become(cmd, launch.idle_environment(os.environ))
    collectors = capturing.collectors()
    if (record_shapes or modules) and tool is None:
        raise UsageError("--record-shapes and --modules say what --emit labels: add --emit nvtx (or itt)")
    for note in launch.other_tools(tool):
        show(f"note: {note}\n", err=True)
    emit = launch.Emit(tool, record_shapes, modules) if tool is not None else None
    with capturing.capture_folder(wanted) as folder:
        code = capturing.run(cmd, launch.environment(os.environ, collectors, folder, emit))
        captured = capturing.look(folder)
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
