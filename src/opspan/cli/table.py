"""Implements `opspan table`, which prints the table of torch.profiler for any trace. Also prints VTune's reports,
although these have only sums by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from opspan.cli.answers import Verb, show_answer
from opspan.cli.loading import FILE_TO_READ, expanded
from opspan.errors import ReadError, UsageError
from opspan.questions import Options
from opspan.sources import SOURCES

if TYPE_CHECKING:
    from opspan.addresses import File
    from opspan.analysis import Analysis
    from opspan.readers.vtune.reports import VtuneReport
    from opspan.tables import Tables

_HELP = """Print the ops of a trace as torch.profiler's table.

Lines below the table say how much could be attributed, and what was skipped or odd. With json they are part of the
document, with csv they go to stderr. On a terminal the table is fitted to its width (or to $COLUMNS), and a line says
which columns were left out.

A report that `vtune -report` printed is shown with the columns that it has.

Several FILEs are read as the ranks of one run. opspan recognises a FILE by its content, whatever its name. It can
be any of:

\b
{sources}

\b
Example:
  opspan table report.sqlite --by shape --sort-by self_cuda_time_total --limit 20
  opspan table report.sqlite --op aten::mm --by kernel
  opspan table capture --by step --step 'train step*'
  opspan table rank0.sqlite rank1.sqlite --by kernel --format json
"""

# Options that only traces have. They are errors for a VTune report, which is printed in full.
_OF_TRACES = ("by", "op", "kernels", "memory", "sort_by", "between", "step", "processes", "dask")

# Addresses with these suffixes are fetched to find out whether they are reports; other addresses are not.
_REPORT_SUFFIXES = (".csv", ".txt", ".tsv", ".log")


class TableVerb(Verb):
    def request(self, options: Options, more: Mapping[str, Any]) -> Options:
        if more["metrics"] and options.by != "name":
            raise UsageError(
                f"--metrics adds columns to the table by name, and --by is {options.by}; expected --by name"
            )
        if more["metrics"] and (count := len(expanded(options.files))) > 1:
            raise UsageError(
                f"--metrics is a report of one run of a program; expected its one trace, and got {count} files"
            )
        return replace(options, **{name: more[name] for name in ("op", "kernels", "memory", "sort_by")})

    def needs_all(self, more: Mapping[str, Any]) -> str | None:
        return "--metrics" if more["metrics"] else None

    def lean(self) -> Callable[[Tables], Tables]:
        from opspan.views.table import lean

        return lean

    def prints_report(
        self, files: Sequence[File], limit: int | None, form: str, more: Mapping[str, Any], *, wide: bool
    ) -> bool:
        """Prints the file if there is only one and it is a report of VTune. Returns whether it was printed."""
        report = None if more["metrics"] else _report_of(files)
        if report is None:
            return False
        context = click.get_current_context()
        odd = [name for name in _OF_TRACES if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if odd:
            raise UsageError(
                f"{files[0].name} is a report of VTune, whose sums have no ops or times to choose from; leave out "
                + " and ".join(f"--{name.replace('_', '-')}" for name in odd)
            )
        _show_report(report, limit, form, wide=wide)
        return True

    def extended(self, analysis: Analysis, more: Mapping[str, Any]) -> Analysis:
        """Returns the analysis of the trace with the metrics of the reports that --metrics names."""
        if not more["metrics"]:
            return analysis
        from opspan.analysis import Analysis
        from opspan.readers.vtune.reports import read
        from opspan.remote import local
        from opspan.tables.metrics import with_metrics

        trace = analysis.tables
        for file in more["metrics"]:
            with local(file) as path:
                report = read(path)
            trace = with_metrics(trace, report.frame, report.issues)
        return Analysis(trace)


def _report_of(files: Sequence[File]) -> VtuneReport | None:
    """Reads the file if there is only one and it is a report of VTune, else returns None."""
    if len(files) != 1:
        return None
    (file,) = files
    if isinstance(file, Path):
        return _read_report(file)
    if not file.name.lower().endswith(_REPORT_SUFFIXES):
        return None
    from opspan.remote import local

    with local(file) as path:
        return _read_report(path)


def _read_report(path: Path) -> VtuneReport | None:
    from opspan.formats.boundary import boundary
    from opspan.readers.registry import is_report, source_for

    try:
        if path.is_dir() or not is_report(path, source_for(path)):
            return None
    except ReadError:
        return None  # reading the file as a trace will show the error
    from opspan.readers.vtune.reports import read

    with boundary(path):
        return read(path)


def _show_report(report: VtuneReport, limit: int | None, form: str, *, wide: bool) -> None:
    from opspan.analysis import Analysis
    from opspan.tables import Metadata, Tables
    from opspan.views.answer import footer_lines
    from opspan.views.vtune_report import answer

    run = Analysis(Tables((Metadata("vtune", (str(report.path),)),), issues=report.issues.frame()))
    show_answer(answer(report.frame), [run], footer_lines(run), limit, form, wide=wide)


_OPTIONS = (
    click.Option(
        ["--op"],
        metavar="NAME",
        help="Only ops and ranges called NAME (* stands for any text); by kernel or stream, only what they launched.",
    ),
    click.Option(
        ["--kernels"], is_flag=True, help="Print rows for kernels and copies as well, as torch.profiler does."
    ),
    click.Option(["--memory"], is_flag=True, help="Add columns for memory: what was allocated minus what was freed."),
    click.Option(
        ["--sort-by"],
        metavar="COL",
        help="Column to sort by, named as in the JSON or as torch names it.  [default: self device time, "
        "or self CPU time where there is none]",
    ),
    click.Option(
        ["--metrics"],
        metavar="REPORT",
        multiple=True,
        type=FILE_TO_READ,
        help="A file of `vtune -report ... -group-by task`: its metrics become columns of the table by name. Can be "
        "given several times.",
    ),
)
command = TableVerb(
    "table", _HELP.format(sources="\n".join(f"  {source.reads}" for source in SOURCES)), _OPTIONS
).command()
