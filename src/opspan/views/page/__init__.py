"""The report: the results of opspan as one page of HTML that any browser opens. docs/page.md describes the page.

Figures come from analysis and findings, and the page's own program (src/page) draws them. In this folder, a file for
each section chooses what the section shows, and turns it into JSON.
"""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis


def write(analysis: Analysis, out: Path) -> list[str]:
    """Writes the page for `opspan export`, without a run to compare with."""
    from opspan.views.page.document import document
    from opspan.views.page.report import subject_of

    out.write_text(document(subject_of(analysis)), encoding="utf-8")
    return []
