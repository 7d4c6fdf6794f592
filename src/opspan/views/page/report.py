"""The page as a file, and as the result of a notebook cell."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from opspan.addresses import File, recorded_file
from opspan.analysis import Analysis
from opspan.views.page.document import document
from opspan.views.page.section import Subject
from opspan.views.registry import check_named, export

_INLINE = '<iframe srcdoc="{page}" style="width: 100%; height: 42rem; border: 0" title="opspan report"></iframe>'


class Report:
    """A page, which a notebook shows in an iframe."""

    def __init__(self, page: str) -> None:
        self.html = page

    def _repr_html_(self) -> str:
        return _INLINE.format(page=html.escape(self.html))


def check(out: Path, sources: Sequence[File], *, overwrite: bool) -> None:
    """Raises WriteError if the page must not be written to `out`."""
    check_named("page", out, sources, overwrite=overwrite)


def write(subject: Subject, out: Path, *, overwrite: bool) -> str:
    """Writes the page to `out`, completely or not at all. Returns the HTML of the page."""
    check(out, [*subject.files, *subject.other_files], overwrite=overwrite)
    page = document(subject)

    def put(_: Analysis, path: Path) -> list[str]:
        path.write_text(page, encoding="utf-8")
        return []

    export(subject.analysis, out, overwrite=overwrite, name="page", write=put)
    return page


def report(analysis: Analysis, out: Path | None, other: Analysis | None, *, overwrite: bool) -> Report:
    subject = subject_of(analysis, other)
    return Report(document(subject) if out is None else write(subject, out, overwrite=overwrite))


def subject_of(analysis: Analysis, other: Analysis | None = None) -> Subject:
    """Returns the subject of a page, with the files that both analyses were read from."""
    files, others = (
        tuple(map(recorded_file, run.tables.paths)) if run is not None else () for run in (analysis, other)
    )
    return Subject(analysis, files, other, others)
