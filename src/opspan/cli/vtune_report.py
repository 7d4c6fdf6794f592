"""Implements `opspan table` for a VTune report, which has sums by name, and is not a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opspan.cli.answers import show_answer
from opspan.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opspan.addresses import File
    from opspan.readers.vtune.reports import VtuneReport

_ENDINGS = (".csv", ".txt", ".tsv", ".log")


def report_of(files: Sequence[File]) -> VtuneReport | None:
    """Reads the file if there is only one and it is a report, else returns None. A file at an address is fetched only
    if its name has the suffix of a text file."""
    from opspan.formats.boundary import boundary
    from opspan.readers.registry import is_report, source_for
    from opspan.remote import local

    if len(files) != 1 or (not isinstance(files[0], Path) and not files[0].name.lower().endswith(_ENDINGS)):
        return None
    with local(files[0]) as path:
        try:
            if path.is_dir() or not is_report(path, source_for(path)):
                return None
        except ReadError:
            return None  # reading the file as a trace will show the error
        from opspan.readers.vtune.reports import read

        with boundary(path):
            return read(path)


def show_report(report: VtuneReport, limit: int | None, form: str, *, wide: bool) -> None:
    from opspan.analysis import Analysis
    from opspan.tables import Metadata, Tables
    from opspan.views.footer import footer_lines
    from opspan.views.vtune_report import answer

    run = Analysis(Tables((Metadata("vtune", (str(report.path),)),), issues=report.issues.frame()))
    show_answer(answer(report.frame), [run], footer_lines(run), limit, form, wide=wide)
