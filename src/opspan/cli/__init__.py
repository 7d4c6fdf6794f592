"""Implements the command line: parses options, calls the library, and prints. Each verb (subcommand) has a module here.

A verb's module is imported only when the verb is used. It imports the large modules of opspan inside its function.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from opspan.cli.correction import correct
from opspan.cli.printing import ReaderGone, flush, show, show_help
from opspan.errors import OpspanError

# The verbs, grouped by purpose, in the order in which a newcomer needs them. Each verb has a module in this package,
# which defines `command`.
GROUPS = {
    "See first": ("summary", "demo"),
    "Measure": (
        "findings",
        "table",
        "steps",
        "idle",
        "launches",
        "waits",
        "path",
        "functions",
        "memory",
        "comm",
        "flops",
    ),
    "Show": ("report", "view", "diff", "export"),
    "Capture": ("run", "exec", "attach", "top"),
    "Other": ("doctor", "push", "help"),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
# Python's garbage collector runs after this many new objects. With the default (700 up to Python 3.12) it would run
# hundreds of times while a verb imports its modules, and find no garbage.
_OBJECTS = 200_000


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            args = correct(args, VERBS, self.get_command(ctx, "summary"))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = f"opspan.cli.{cmd_name}"
        command = import_module(module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.command is no click command")
        return _with_help(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                limit = formatter.width - 6 - width
                rows = [
                    (f"{verb:{width}}", command.get_short_help_str(limit))
                    for verb in verbs
                    if (command := self.get_command(ctx, verb)) is not None
                ]
                formatter.write_dl(rows)

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        """Runs a verb, and ends the process with the exit code of the verb, or with 2 after an error."""
        if os.environ.get("_OPSPAN_COMPLETE"):  # a shell asks how a word can be completed
            return super().main(args, prog_name="opspan")
        thresholds = gc.get_threshold()
        gc.set_threshold(_OBJECTS)
        try:
            result = self._run(args)
            if args is None and not callable(result):
                # Python exits next. Without this call it would search all imported objects for garbage.
                gc.freeze()
        finally:
            gc.set_threshold(*thresholds)
        # `exec` runs the script here and not inside of click, because click would handle the script's
        # KeyboardInterrupt.
        sys.exit(result() if callable(result) else result)

    def _run(self, args: Sequence[str] | None) -> int | Callable[[], NoReturn]:
        try:
            result = self._result(sys.argv[1:] if args is None else list(args))
            if not callable(result):
                flush()
        except ReaderGone:
            return _READER_GONE
        except click.ClickException as error:
            verb = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "opspan"
            return _failed(f"{' '.join(error.format_message().split())} See `{verb} --help`")
        except (click.Abort, KeyboardInterrupt, EOFError):
            show("\n", err=True)
            return 130
        except (OpspanError, OSError) as error:
            if os.environ.get("OPSPAN_DEBUG"):
                _show_traceback(error)
            if isinstance(error, OpspanError):
                return _failed(str(error))
            return _failed(f"{error.filename or 'the system refused something'}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001  a fault of opspan; Python itself would exit with 1
            _show_traceback(error)
            return _failed("this is a fault of opspan: please report what stands above")
        return result if isinstance(result, int) or callable(result) else 0

    def _result(self, args: list[str]) -> Any:
        """Runs the verb, and returns its result. click's own `main` is not used, because it exits with 1 if a pipe is
        broken."""
        try:
            with self.make_context("opspan", args) as ctx:
                return self.invoke(ctx)
        except click.exceptions.Exit as done:
            return done.exit_code


_READER_GONE = 141  # the exit code of a program that SIGPIPE killed, as a shell shows it (128 + 13)


def _failed(message: str) -> int:
    show(f"error: {message}\n", err=True)
    flush()
    return 2


def _show_traceback(error: BaseException) -> None:
    import traceback

    show("".join(traceback.format_exception(error)), err=True)


def _with_help(command: click.Command) -> click.Command:
    """Adds opspan's option --help to the command, because click's own --help prints a traceback if the output cannot
    be written. Returns the command."""
    if command.add_help_option:
        command.add_help_option = False
        command.params.append(
            click.Option(
                ["-h", "--help"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=show_help,
                help="Show this message and exit.",
            )
        )
    return command


def _show_version(ctx: click.Context, _parameter: click.Parameter, is_on: bool) -> None:
    if is_on:
        from opspan.version import VERSION

        show(f"opspan {VERSION}\n")
        ctx.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    subcommand_metavar="COMMAND|FILE [ARGS]...",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Label every PyTorch op for the profiler you already use, capture with no profiler at all, and read the result.

    \b
    Example:
      opspan run --emit nvtx -o capture -- python train.py
      opspan capture
      opspan report capture -o report.html

    `opspan FILE` is `opspan summary FILE`. If a file has the name of a command, write its folder, too: ./table.
    """
    if ctx.invoked_subcommand is None:
        show_help(ctx)
    elif ctx.invoked_subcommand != "exec":  # the script of `exec` gets the same streams as under python
        _occupy_standard_streams()


_with_help(main)


def _occupy_standard_streams() -> None:
    """Opens /dev/null in place of standard streams that are closed. Otherwise the next opened file would get the file
    descriptor of a closed stream, and libraries would print into that file."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
