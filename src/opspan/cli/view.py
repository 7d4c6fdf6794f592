"""Implements `opspan view`, which serves the page of `opspan report` on loopback until Ctrl-C."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import click

from opspan.cli.loading import Progress, trace_files
from opspan.cli.page import open_option, page_options
from opspan.cli.printing import show
from opspan.printable import shell_path

if TYPE_CHECKING:
    from opspan.app.serving import PageServer
    from opspan.cli.page import PageFiles

_HELP = """Serve the page of `opspan report` to the browser, also over ssh, until Ctrl-C.

No file is written. Only this machine can reach the page, and only with its address, which nobody can guess. If the
session is over ssh, a line to copy is printed: it makes your own machine reach the page, too. Several FILEs are read
as the ranks of one run.

\b
Example:
  opspan view trace.json.gz
  opspan view trace.json.gz --open
  opspan view rank0.json rank1.json --port 8123
"""


@click.command("view", help=_HELP)
@trace_files
@click.option("--port", metavar="N", type=click.IntRange(1, 65535), help="The port to use.  [default: any free one]")
@open_option
@page_options
def command(
    pages: PageFiles,
    port: int | None,
    is_opened: bool,
) -> int:
    from opspan.app.serving import PageServer
    from opspan.views.page.document import document

    with PageServer(port or 0) as server:
        with Progress(len(pages.all) + 1) as progress:
            subject = pages.read(progress)
            progress.step("making the page")
            server.page = document(subject).encode()
            del subject  # frees the trace, which needs more memory than the page
        try:
            _announce(server, is_opened=is_opened)
            server.serve_forever()
        except KeyboardInterrupt:
            show("\n", err=True)  # ends the line in which the terminal shows ^C
    return 0


def _announce(server: PageServer, *, is_opened: bool) -> None:
    show(f"The page is at {server.address}\n")
    if os.environ.get("SSH_CONNECTION"):
        forward = f"ssh -L {server.server_port}:127.0.0.1:{server.server_port} {shell_path(platform.node() or 'HOST')}"
        show(f"To reach it from your own machine, run this there:\n{forward}\n")
    if is_opened:
        from opspan.app.browser import open_address

        if reason := open_address(server.address_once()):
            show(f"No browser was opened, as {reason}\n")
    show("Ctrl-C ends it\n")
