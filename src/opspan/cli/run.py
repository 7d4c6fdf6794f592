"""Implements `opspan run`, which captures a program and its children without a vendor's tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.app.launch import REASONS
from opspan.cli.options import FILE_TO_WRITE, capture_folder, labelling
from opspan.cli.printing import show
from opspan.errors import UsageError
from opspan.printable import path_text, plural, shell_path, shell_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opspan.app import launch


@click.command("run", context_settings={"allow_interspersed_args": False})
@capture_folder
@labelling
@click.option(
    "--keep",
    metavar="AMOUNT",
    multiple=True,
    help="Record torch's ops while CMD runs, and keep only the last AMOUNT: `30s`, `2GB` or `50 steps`. Given "
    "several times, the smallest counts.",
)
@click.option(
    "--dump-to",
    metavar="DIR",
    type=FILE_TO_WRITE,
    help="With --keep: write copies of the kept recording to this folder, each in a folder of its own.",
)
@click.option(
    "--dump-on",
    type=click.Choice(REASONS),
    multiple=True,
    help="With --dump-to: when to write a copy. `signal` is SIGUSR2, sent to a process of CMD.  [default: exception]",
)
@click.option(
    "--perf", is_flag=True, help="Take samples of the stacks of CMD's threads with Linux's `perf`, if it is allowed."
)
@click.option("--idle", is_flag=True, help="Capture nothing: only make CMD ready for `opspan attach` and `opspan top`.")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    wanted: Path | None,
    tool: str | None,
    record_shapes: bool,
    modules: bool,
    compiled: bool,
    keep: tuple[str, ...],
    dump_to: Path | None,
    dump_on: tuple[str, ...],
    perf: bool,
    idle: bool,
    cmd: tuple[str, ...],
) -> int:
    """Run CMD and capture its NVTX and ITT ranges.

    The processes that CMD starts are captured as well. With --emit, every Python program among them that imports
    torch labels its ops, without an edit of its files. Without --emit, torch's ops are not labelled. Exits with CMD's
    exit code, or with 128 + n if signal n ended CMD.

    With --keep, every Python program below CMD that imports torch records its ops itself, and keeps only the last ones
    in a ring of files in DIR. DIR can be read at any time, also after a crash.

    With --perf, `perf` takes samples of all threads while CMD runs, and DIR gets them as perf.data and as text,
    perf.txt, which is read with the capture. If `perf` is missing or not allowed, CMD runs without it.

    With --idle, CMD runs as it would without opspan, in place of this process. Every Python program below CMD that
    imports torch listens, so that `opspan attach` can make it record.

    \b
    Example:
      opspan run --emit nvtx --record-shapes -o capture -- python train.py --epochs 3
      opspan run -- ./program-that-uses-nvtx
      opspan run --perf --emit nvtx -o capture -- python train.py
      opspan run --keep 30s -o ring --dump-to dumps --dump-on signal -- python train.py
      opspan run --idle -- torchrun --nproc-per-node 8 train.py
    """
    from opspan.app import capturing, launch, run_notes

    if idle:
        options = (tool, record_shapes, modules, compiled, keep, dump_to, dump_on, perf)
        if wanted is not None or any(options):
            raise UsageError("--idle captures nothing: what to record, and where to, is said to `opspan attach`")
        capturing.become(cmd, launch.idle_environment(os.environ))
    if keep or dump_to is not None or dump_on:
        if not keep:
            raise UsageError("--dump-to and --dump-on are of a recording that keeps the last alone: add --keep 30s")
        if tool is not None:
            raise UsageError("--keep records ops itself, without NVTX or ITT: leave out --emit")
        to = None if dump_to is None else str(dump_to.absolute())
        return _keep(launch.RollingOptions(keep, to, dump_on, record_shapes, modules, compiled), wanted, cmd, perf)
    collectors = capturing.collectors()
    if (record_shapes or modules or compiled) and tool is None:
        raise UsageError("--record-shapes, --modules and --compiled say what --emit labels: add --emit nvtx (or itt)")
    for note in launch.other_tools(tool):
        show(f"note: {note}\n", err=True)
    emit = launch.Emit(tool, record_shapes, modules, compiled) if tool is not None else None
    with capturing.capture_folder(wanted) as folder:
        with run_notes.collect(folder) as (file, notes):
            code = _run(cmd, launch.environment(os.environ, collectors, folder, emit, file), folder, perf)
        captured = capturing.look(folder)
    processes = plural(captured.processes, "process", "processes")
    if captured.ranges:
        show(f"Wrote {path_text(folder)} ({processes}, {captured.bytes:,} bytes)\n", err=True)
    else:
        listened = f", and {processes} could be listened to ({path_text(folder)})" if captured.processes else ""
        why = _nothing_called(None if captured.processes or perf else wanted, cmd, perf)
        if tool is not None:
            why = notes.why_nothing("labelled")
        show(f"Captured nothing: {why}{listened}\n", err=True)
    return code


def _run(cmd: tuple[str, ...], environment: Mapping[str, str], folder: Path, perf: bool) -> int:
    from opspan.app import capturing, sampling

    if not perf:
        return capturing.run(cmd, environment)
    return sampling.run(cmd, environment, folder, lambda line: show(f"{line}\n", err=True))


def _keep(rolling: launch.RollingOptions, wanted: Path | None, cmd: tuple[str, ...], perf: bool) -> int:
    from opspan.app import capturing, launch, run_notes

    rolling.check()
    with capturing.capture_folder(wanted) as folder:
        with run_notes.collect(folder) as (file, notes):
            code = _run(cmd, launch.rolling_environment(os.environ, rolling, folder, file), folder, perf)
        captured = capturing.look(folder)
    processes = plural(captured.processes, "process", "processes")
    if captured.processes:
        show(f"Wrote {path_text(folder)} ({processes}, {captured.bytes:,} bytes: the last of it)\n", err=True)
    else:
        show(f"Recorded nothing: {notes.why_nothing('recorded')}\n", err=True)
    return code


def _nothing_called(free: Path | None, cmd: tuple[str, ...], perf: bool) -> str:
    """Returns a sentence that says why nothing was captured. `free` is the folder from -o if it is still empty."""
    output = [] if free is None else ["-o", shell_path(free)]
    run = "opspan run --perf --emit nvtx" if perf else "opspan run --emit nvtx"
    command = " ".join([run, *output, "--", *map(shell_word, cmd)])
    return f"no process made an NVTX or ITT call, and torch's ops make none by themselves; to label them: `{command}`"
