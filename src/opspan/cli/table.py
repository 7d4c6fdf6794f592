"""opspan table: what torch.profiler would print, of any trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from opspan.cli.loading import Progress, expanded, in_processes, load, many, part_of_trace, steps_asked, trace_files
from opspan.cli.options import FILE_TO_READ, printing
from opspan.cli.printing import show, show_data
from opspan.cli.vtune_report import report_of, show_report
from opspan.errors import UsageError
from opspan.printable import plural
from opspan.sources import SOURCES

if TYPE_CHECKING:
    from opspan.addresses import File
    from opspan.tables import Tables
    from opspan.views.footer import Run


_HELP = """Print the ops of a trace as torch.profiler's table.

Below the table it says how much could be attributed, and what was skipped or odd. With json that is part of the
document, with csv it goes to stderr. On a terminal the table is fitted to its width (or to $COLUMNS), and a line says
which columns were left out.

A report that `vtune -report` printed is shown with the columns that it has.

Several FILEs are read as the ranks of one run. A FILE is told by its content, whatever its name is. It can be any of:

\b
{sources}

\b
Example:
  opspan table report.sqlite --by shape --sort-by self_cuda_time_total --limit 20
  opspan table report.sqlite --op aten::mm --by kernel
  opspan table capture --by step --step 'train step*'
  opspan table rank0.sqlite rank1.sqlite --by kernel --format json
"""

# Options that choose from a trace: a report of VTune is printed as it is.
_OF_TRACES = ("by", "op", "kernels", "memory", "sort_by", "between", "step", "processes", "dask")


@click.command("table", help=_HELP.format(sources="\n".join(f"  {source.reads}" for source in SOURCES)))
@trace_files
@part_of_trace
@in_processes
@click.option(
    "--by",
    type=click.Choice(["name", "shape", "stack", "module", "step", "phase", "stream", "kernel"]),
    default="name",
    show_default=True,
    help="Group by this: one row for each.",
)
@click.option(
    "--op",
    metavar="NAME",
    help="Only ops and ranges called NAME (* stands for any text); by kernel or stream, only what they launched.",
)
@click.option("--kernels", is_flag=True, help="Print rows for kernels and copies as well, as torch.profiler does.")
@click.option("--memory", is_flag=True, help="Add columns for memory: what was allocated minus what was freed.")
@click.option(
    "--sort-by",
    metavar="COL",
    help="Column to sort by, named as in the JSON or as torch names it.  [default: self device time, "
    "or self CPU time where there is none]",
)
@click.option(
    "--metrics",
    metavar="REPORT",
    multiple=True,
    type=FILE_TO_READ,
    help="A file of `vtune -report ... -group-by task`: its metrics become columns of the table by name. Can be given "
    "several times.",
)
@printing
def command(
    files: tuple[File, ...],
    between: tuple[str, str] | None,
    step: str | None,
    cycle: int | None,
    processes: int | None,
    dask: str | None,
    by: str,
    op: str | None,
    kernels: bool,
    memory: bool,
    sort_by: str | None,
    limit: int | None,
    metrics: tuple[File, ...],
    wide: bool,
    form: str,
) -> None:
    from opspan.analysis import Analysis
    from opspan.text_columns import Layout, terminal
    from opspan.views import missing
    from opspan.views import table as tables
    from opspan.views.footer import footer_lines

    if not metrics and (report := report_of(files)) is not None:
        given = click.get_current_context()
        odd = [name for name in _OF_TRACES if given.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if odd:
            raise UsageError(
                f"{files[0].name} is a report of VTune, whose sums have no ops or times to choose from; leave out "
                + " and ".join(f"--{name.replace('_', '-')}" for name in odd)
            )
        show_report(report, limit, form, wide=wide)
        return
    if metrics and by != "name":
        raise UsageError(f"--metrics adds columns to the table by name, and --by is {by}; expected --by name")
    steps = steps_asked(step)
    asked = tables.Asked(by, sort_by, op, kernels, memory, steps if isinstance(steps, str) else None)
    if metrics and (processes or dask):
        raise UsageError("--metrics needs all of a trace at once: leave out --processes and --dask")
    if metrics:
        files = expanded(files)
        if len(files) > 1:
            raise UsageError(
                f"--metrics is a report of one run of a program; expected its one trace, and got {len(files)} files"
            )
    ranks = None if metrics else many(files, between, step, processes, dask, cycle)
    run: Run
    with Progress((len(files) if ranks is None else len(ranks)) + 1) as progress:
        if ranks is not None:
            from opspan.many.task import Question
            from opspan.views import table_of_ranks

            progress.step(f"reading {plural(len(ranks), 'file')}")
            (parts,) = ranks.ask(Question("table_of_ranks", {"asked": asked}), progress=progress.done)
            table, run = table_of_ranks.rows(parts, asked), ranks.whole
            not_there = parts["missing"].rows["text"].to_list()
        else:
            found = load(files, progress, between, step, tables.lean, cycle)
            if metrics:
                found = Analysis(_with_reports(found.tables, metrics))
            progress.step(f"adding up {plural(found.tables.ranges.height, 'range')}")
            table, run = tables.table_of(found, asked), found
            not_there = missing.lines(found, by)
        findings = footer_lines(run)
    layout = Layout(whole_names=True) if wide or form != "text" else terminal()
    if form != "text":
        show("".join(f"{note}\n" for note in table.notes), err=True)
    if form == "json":
        show_data(tables.as_json(run, table, -1 if limit is None else limit))
    elif form == "csv":
        show_data(tables.as_csv(table, -1 if limit is None else limit))
        show("".join(f"{line}\n" for line in findings), err=True)
    else:
        text = tables.as_text(table, tables.ROWS_OF_TEXT if limit is None else limit, layout)
        show(text + "".join(f"{line}\n" for line in ("", *layout.lines(findings)) if findings))
    show("".join(f"{line}\n" for line in layout.lines(not_there)), err=True)


def _with_reports(trace: Tables, reports: tuple[File, ...]) -> Tables:
    from opspan.readers.vtune.reports import read
    from opspan.remote import local
    from opspan.tables.metrics import with_metrics

    for file in reports:
        with local(file) as found:
            report = read(found.path)
        trace = with_metrics(trace, report.frame, report.issues)
    return trace
