"""Implements `opspan report`, which writes all results of opspan as one page."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.cli.loading import Progress, trace_files
from opspan.cli.options import FILE_TO_WRITE
from opspan.cli.page import open_option, open_page, page_options
from opspan.cli.printing import show
from opspan.files import exists
from opspan.printable import path_text, plural

if TYPE_CHECKING:
    from opspan.cli.page import PageFiles

_HELP = """Write a page with all that opspan finds: overview, findings, ops, modules, kernels, timeline, memory, ranks.

The page is one file. It opens in any browser, without a server, and makes no request. Several FILEs are read as the
ranks of one run. With --against, the page compares the run with an earlier one. With --open, it is opened in the
browser; `opspan view` shows it where the browser is on another machine.

\b
Example:
  opspan report report.sqlite -o report.html
  opspan report trace.json.gz --open
  opspan report rank0.json rank1.json -o run.html
  opspan report after.json --against before.json -o compared.html
"""


@click.command("report", help=_HELP)
@trace_files
@click.option(
    "-o",
    "--output",
    "wanted",
    metavar="OUT",
    type=FILE_TO_WRITE,
    help="The file to write.  [default: report.html; with --open, report-2.html and so on if it exists]",
)
@open_option
@page_options
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists (never an input file).")
def command(
    pages: PageFiles,
    wanted: Path | None,
    is_opened: bool,
    force: bool,
) -> None:
    from opspan.views.page.report import check, write

    out = wanted or _free_name(is_numbered=is_opened and not force)
    check(out, pages.all, overwrite=force)
    with Progress(len(pages.all) + 1) as progress:
        subject = pages.read(progress)
        progress.step(f"writing {out.name!r}")
        page = write(subject, out, overwrite=force)
    size = len(page.encode())
    ranges = plural(subject.analysis.tables.ranges.height, "range")
    wrote = f"Wrote {path_text(out)} ({size / 1e6:.1f} MB, {ranges})"
    show(f"{wrote}\n" if is_opened else f"{wrote}: open it in a browser\n")
    if is_opened:
        open_page(out)


def _free_name(*, is_numbered: bool) -> Path:
    """Returns report.html or, if that exists and `is_numbered`, the first free report-N.html. The file is in the
    working directory, because browsers that run in a sandbox cannot read temporary and hidden folders."""
    out = Path("report.html")
    numbers = count(2)
    while is_numbered and exists(out):
        out = Path(f"report-{next(numbers)}.html")
    return out
