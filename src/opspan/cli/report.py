"""Implements `opspan report`, which writes all results of opspan as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.cli.loading import Progress, all_at_once, expanded, load, not_named, part_of_trace, trace_files
from opspan.cli.options import FILE_TO_READ, FILE_TO_WRITE
from opspan.cli.printing import show
from opspan.errors import UsageError
from opspan.printable import path_text, plural

if TYPE_CHECKING:
    from opspan.addresses import File

_HELP = """Write a page with all that opspan finds: overview, findings, ops, modules, kernels, timeline, memory, ranks.

The page is one file. It opens in any browser, without a server, and makes no request. Several FILEs are read as the
ranks of one run. With --against, the page compares the run with an earlier one.

\b
Example:
  opspan report report.sqlite -o report.html
  opspan report rank0.json rank1.json -o run.html
  opspan report after.json --against before.json -o compared.html
"""


@click.command("report", help=_HELP)
@trace_files
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=FILE_TO_WRITE,
    default=Path("report.html"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--against",
    "other",
    metavar="B",
    multiple=True,
    type=FILE_TO_READ,
    help="The earlier run to compare with; give it once for each rank.",
)
@click.option(
    "--editor",
    metavar="ADDRESS",
    default=None,
    help="How the page opens a source line: an address with {file} and {line} in it. Default: vscode://file/{file}:{line}",
)
@all_at_once
@part_of_trace
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists (never an input file).")
def command(
    files: tuple[File, ...],
    out: Path,
    other: tuple[File, ...],
    editor: str | None,
    between: tuple[str, str] | None,
    step: str | None,
    cycle: int | None,
    force: bool,
) -> None:
    from opspan.views.page.report import check, write
    from opspan.views.page.section import EDITOR, Subject

    if editor is not None and not ("{file}" in editor and "://" in editor):
        raise UsageError(
            f"--editor is an address with {{file}} and {{line}} in it, such as {EDITOR}, and not {editor!r}"
        )
    arguments, files, other = (*files, *other), expanded(files), expanded(other)
    check(out, [*files, *other], overwrite=force)
    with Progress(len(files) + len(other) + 1) as progress:
        analysis = load(files, progress, between, step, cycle=cycle, unnamed=not_named(files, arguments))
        compared = load(other, progress, unnamed=not_named(other, arguments)) if other else None
        progress.step(f"writing {out.name!r}")
        page = write(Subject(analysis, files, compared, other, editor or EDITOR), out, overwrite=force)
    size = len(page.encode())
    ranges = plural(analysis.tables.ranges.height, "range")
    show(f"Wrote {path_text(out)} ({size / 1e6:.1f} MB, {ranges}): open it in a browser\n")
