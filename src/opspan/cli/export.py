"""Implements `opspan export`, which writes a trace as a file for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.cli.loading import PartToRead, Progress, all_at_once, expanded, how_to_read, load, trace_files
from opspan.cli.options import FILE_TO_WRITE
from opspan.cli.printing import show
from opspan.outputs import help_lines
from opspan.printable import path_text, plural

if TYPE_CHECKING:
    from opspan.addresses import File

_HELP = """Write a trace as a file for other tools.

The suffix of OUT chooses the format:

\b
{outputs}

Several FILEs are read as the ranks of one run. OUT appears only when it is complete.

With --samples, .stacks, .svg, .speedscope.json and .pb.gz show the samples of the host's processors: the functions of
each sample, below the modules and ops that were running on its thread.

\b
Example:
  opspan export report.sqlite report.json.gz
  opspan export trace.json run.svg && firefox run.svg
  opspan export report.sqlite samples.svg --samples
  opspan export rank0.sqlite rank1.sqlite run.db && sqlite3 run.db 'SELECT * FROM op_summary LIMIT 10'
"""


@click.command("export", help=_HELP.format(outputs=help_lines()))
@trace_files
@click.argument("out", metavar="OUT", type=FILE_TO_WRITE)
@all_at_once
@how_to_read
@click.option("--samples", is_flag=True, help="Write the stacks of samples of the host's processors.")
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists (never an input file).")
def command(
    files: tuple[File, ...],
    out: Path,
    reading: PartToRead,
    force: bool,
    samples: bool,
) -> None:
    from opspan.views import check_output, contents, export, missing
    from opspan.views.answer import issue_lines

    expanded_files = expanded(files)
    check_output(out, expanded_files, overwrite=force, samples=samples)
    with Progress(len(expanded_files) + 1) as progress:
        analysis = load(expanded_files, progress, reading, named=files)
        trace = analysis.tables
        progress.step(f"writing {out.name!r}")
        left_out = export(analysis, out, overwrite=force, samples=samples)
    show("".join(f"{line}\n" for line in [*issue_lines(trace), *left_out, *missing.labels_line(trace)]), err=True)
    contents_text = plural(trace.ranges.height, "range") if trace.ranges.height else contents.counted(trace)
    if samples:
        contents_text = plural(trace.samples.height, "sample")
    show(f"Wrote {path_text(out)} ({contents_text}, {plural(trace.issues.height, 'issue')})\n")
