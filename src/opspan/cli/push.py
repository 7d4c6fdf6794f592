"""Implements `opspan push`, which sends a trace as a profile to a Pyroscope server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.app.ingest import CREDENTIALS
from opspan.cli.loading import PartToRead, Progress, all_at_once, expanded, how_to_read, load, trace_files
from opspan.cli.printing import show

if TYPE_CHECKING:
    from opspan.addresses import File

_HELP = f"""Push a trace's tree to a Pyroscope server, as a profile with host time and device time.

It is one request, sent again while the server cannot be reached or says that it cannot take it now. Credentials are
read from ${CREDENTIALS} or a file: TOKEN, or USER:PASSWORD.

\b
Example:
  opspan push capture --url http://localhost:4040 --app train
  opspan push report.sqlite --url https://profiles.example --credentials token.txt --app train --by module --tag team=a
"""


@click.command("push", help=_HELP)
@trace_files
@all_at_once
@how_to_read
@click.option("--url", required=True, metavar="URL", help="Address of the server: http://host:4040.")
@click.option("--app", required=True, metavar="NAME", help="Name of the application there (service_name).")
@click.option(
    "--by",
    type=click.Choice(["op", "module", "function"]),
    default="op",
    show_default=True,
    help="What each frame is: anything down to ops and kernels (op), only modules, or only Python functions.",
)
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="A label; may be given several times.")
@click.option("--now", "is_now", is_flag=True, help="Date the profile now; servers refuse profiles that are hours old.")
@click.option(
    "--credentials",
    "credentials_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with credentials.",
)
@click.option("--tenant", metavar="NAME", help="Tenant, where the server has several (X-Scope-OrgID).")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=3600),
    default=30.0,
    show_default=True,
    help="How long to wait for the server to take more of the profile, and then for its whole answer.",
)
def command(
    files: tuple[File, ...],
    reading: PartToRead,
    url: str,
    app: str,
    by: str,
    tags: tuple[str, ...],
    is_now: bool,
    credentials_file: Path | None,
    tenant: str | None,
    timeout_s: float,
) -> None:
    from opspan.app.ingest import Server, credentials
    from opspan.app.push import push
    from opspan.views.answer import issue_lines

    secret, notes = credentials(credentials_file)
    server = Server.of(url, secret, tenant, timeout_s)
    if server.is_overheard:
        notes.append("credentials go over http, where others can read them: use an https:// address")
    show("".join(f"note: {note}\n" for note in notes), err=True)
    expanded_files = expanded(files)
    with Progress(len(expanded_files) + 1) as progress:
        analysis = load(expanded_files, progress, reading, named=files)
        progress.step(f"pushing to {server.where}")
        pushed = push(analysis, server, app, tags, by, is_now)
    show("".join(f"{line}\n" for line in [*issue_lines(analysis.tables), *pushed.notes]), err=True)
    show(f"Pushed {pushed.bytes:,} bytes to {server.where}: {pushed.query}\n")
