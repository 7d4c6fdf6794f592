"""Implements `opspan exec`, which runs a script in this process and labels its ops, without editing the script."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from opspan.cli.options import labelling
from opspan.cli.printing import show
from opspan.errors import UsageError

if TYPE_CHECKING:
    from opspan.app import launch


class _LikePython(click.Command):
    """A command that does not parse the words after SCRIPT or `-m MOD`, because they are the script's arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        position = 0
        while position < len(args) and args[position].startswith("-"):
            if args[position] == "--":
                break
            if args[position].startswith("-m"):  # python accepts both `-m MOD` and `-mMOD`
                ends = position + (2 if args[position] == "-m" else 1)
                if ends <= len(args):
                    args = [*args[:ends], "--", *args[ends:]]
                break
            position += 2 if args[position] == "--emit" else 1
        return super().parse_args(ctx, args)


@click.command("exec", cls=_LikePython, context_settings={"allow_interspersed_args": False})
@labelling
@click.option(
    "-m", "module", metavar="MOD", help="Run the module MOD, as `python -m MOD` does. What follows are its arguments."
)
@click.argument("arguments", metavar="[SCRIPT] [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def command(
    tool: str | None,
    record_shapes: bool,
    modules: bool,
    compiled: bool,
    module: str | None,
    arguments: tuple[str, ...],
) -> Callable[[], NoReturn]:
    """Run SCRIPT as python would, with torch's ops labelled.

    The labels go to the profiler that is attached, or to the one that --emit names. The script runs in this process:
    its arguments, exit code and tracebacks are those that it has under python. Processes that it forks are labelled
    as well. Other programs that it starts are not labelled: use `opspan run --emit` for these.

    \b
    Example:
      nsys profile -t nvtx,osrt opspan exec --record-shapes train.py --epochs 3
      opspan exec --emit itt -m package.train
    """
    from opspan.app import execute, launch

    if module is None and not arguments:
        raise UsageError("nothing to run; expected a SCRIPT, or -m MOD")
    emit = launch.Emit(tool or "auto", record_shapes, modules, compiled)
    launch.when_torch_is_imported(functools.partial(_start_or_end, emit))
    if module is not None:
        return functools.partial(execute.run_module, module, arguments)
    return execute.script(arguments[0], arguments[1:])


def _start_or_end(emit: launch.Emit) -> None:
    """Starts the emitter. If that fails, ends the program, because a long run without labels is useless."""
    from opspan.app import launch

    try:
        launch.start(emit)
    except Exception as error:  # noqa: BLE001  # a traceback of opspan would look like one of the script's
        show(f"error: {launch.why(error)}\n", err=True)
        raise SystemExit(2) from None
