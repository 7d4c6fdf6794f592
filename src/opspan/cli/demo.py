"""Implements `opspan demo`, which trains a small model, records it, and shows the result."""

from __future__ import annotations

import os
from pathlib import Path

import click

from opspan.cli.options import capture_folder
from opspan.cli.printing import show
from opspan.printable import path_text, plural, shell_path


@click.command("demo")
@capture_folder
def command(wanted: Path | None) -> None:
    """Train a small model, record it, and show the result.

    Prints a table of the model's ops, with backward beside forward, commands to try next, and what `opspan summary`
    says of it. Writes a folder with the capture, with ranges.txt, which lists all ranges, indented by nesting, and with
    the page that `opspan report` makes. Needs only torch.

    \b
    Example:
      opspan demo -o demo
    """
    from opspan.app import capturing, demo
    from opspan.errors import MissingPackage
    from opspan.questions import Options, question
    from opspan.text_columns import terminal
    from opspan.views.answer import as_text
    from opspan.views.overview import overview

    with capturing.capture_folder(wanted) as folder:
        trace = demo.train(folder)
        text = demo.write_tree(trace, folder / "ranges.txt")
    show(f"{overview(trace.analysed, terminal())}\n{_next(folder)}")
    held = f"{plural(trace.ranges.height, 'range')}, {plural(trace.issues.height, 'issue')}"
    show(f"Wrote {path_text(folder)} ({held}) and {path_text(text)}\n")
    answer = question("summary").answer_of(trace.analysed, Options(files=(Path(os.path.relpath(folder)),)))
    short = as_text(answer, 1, terminal())
    show(f"\nIn short, as opspan summary has it:\n{short}")
    page = folder / "report.html"
    try:
        trace.report(page)
    except MissingPackage as missing:
        show(f"\nNo report was written: {missing}\n")
    else:
        show(f"\nAll of it as a page: open {page.resolve().as_uri()} in a browser\n")


def _next(folder: Path) -> str:
    name = shell_path(os.path.relpath(folder))
    commands = {
        f"opspan table {name} --by shape": "the same, apart by the sizes of inputs",
        f"opspan table {name} --by module": "by layer, backward beside it",
        f"opspan export {name} {shell_path(os.path.relpath(folder))}.json": "a timeline, for https://ui.perfetto.dev",
        "opspan run --emit nvtx -o capture -- python train.py": "your own program, not edited",
    }
    width = max(map(len, commands))
    return "Next:\n" + "".join(f"  {command:<{width}}  {why}\n" for command, why in commands.items())
