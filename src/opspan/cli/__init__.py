"""The command line: parse, call, print. What a verb does is in the library; here is one verb a file, and their table.

A verb's module is imported when the verb is asked for, and imports the heavy parts of opspan inside its function.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from opspan.cli.printing import show
from opspan.errors import OpspanError, UsageError

# verb -> the module whose `command` it is
VERBS = {
    "attach": "opspan.cli.attach",
    "comm": "opspan.cli.comm",
    "demo": "opspan.cli.demo",
    "diff": "opspan.cli.diff",
    "doctor": "opspan.cli.doctor",
    "exec": "opspan.cli.exec",
    "export": "opspan.cli.export",
    "findings": "opspan.cli.findings",
    "flops": "opspan.cli.flops",
    "idle": "opspan.cli.idle",
    "launches": "opspan.cli.launches",
    "memory": "opspan.cli.memory",
    "path": "opspan.cli.path",
    "push": "opspan.cli.push",
    "report": "opspan.cli.report",
    "run": "opspan.cli.run",
    "steps": "opspan.cli.steps",
    "summary": "opspan.cli.summary",
    "table": "opspan.cli.table",
    "top": "opspan.cli.top",
    "waits": "opspan.cli.waits",
}


# Python's collector looks for garbage each time that so many more objects are there. By default, 700, it looks hundreds
# of times while a verb imports what it needs, and finds none.
_OBJECTS = 200_000


@contextmanager
def _few_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise UsageError(_no_verb(args))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(VERBS[cmd_name]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{VERBS[cmd_name]}.command is no click command")
        return command

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        """Run a verb and exit: 0, 1 where a verb says so, 2 for bad use or bad input."""
        with _few_collections():
            result = self._run(args)
            if args is None and not callable(result):
                # Python goes, and need not look once more at all that was imported.
                gc.freeze()
        # exec hands the process over. Not inside click, which takes a script's KeyboardInterrupt for its own.
        sys.exit(result() if callable(result) else result)

    def _run(self, args: Sequence[str] | None) -> int | Callable[[], NoReturn]:
        try:
            result = super().main(args, prog_name="opspan", standalone_mode=False)
        except click.ClickException as error:
            verb = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "opspan"
            show(f"error: {' '.join(error.format_message().split())} See `{verb} --help`\n", err=True)
            return 2
        except click.Abort:
            return 130
        except OpspanError as error:
            if os.environ.get("OPSPAN_DEBUG"):
                import traceback

                traceback.print_exception(error)
            show(f"error: {error}\n", err=True)
            return 2
        return result if isinstance(result, int) or callable(result) else 0


def _no_verb(arguments: list[str]) -> str:
    """What to answer where the first word is not a verb, with the command that was probably meant."""
    import difflib
    import shlex

    word, rest = arguments[0], shlex.join(arguments[1:])
    close = difflib.get_close_matches(word.lower(), VERBS, 1, 0.6)
    if close:
        return f"there is no command {word!r}; did you mean `opspan {f'{close[0]} {rest}'.strip()}`?"
    if Path(word).suffix == ".py" and Path(word).is_file():
        program = shlex.join(["python", *arguments])
        return f"{word} is a script and not a command; did you mean `opspan run --emit nvtx -o capture -- {program}`?"
    if Path(word).exists() or "/" in word or Path(word).suffix:
        return f"{word} is not a command; did you mean `opspan table {shlex.join(arguments)}`?"
    return f"there is no command {word!r}; expected one of {', '.join(sorted(VERBS))}: see `opspan --help`"


def _show_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        show(f"opspan {version('opspan')}\n")
        ctx.exit()


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Label every PyTorch op for the profiler you already use, capture with no profiler at all, and read the result.

    \b
    Example:
      opspan run --emit nvtx -o capture -- python train.py
      opspan table capture
    """
