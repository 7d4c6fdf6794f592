"""The report: all that opspan found as one page that opens anywhere. A file a section; docs/page.md has the parts.

What is worked out is worked out in analysis and findings; what is drawn is drawn by the page's own program (src/page).
Here each section says what of it is shown, as JSON.
"""

from __future__ import annotations

from pathlib import Path

from opspan.analysis import Analysis


def write(analysis: Analysis, out: Path) -> list[str]:
    """The page as `opspan export` writes it, with nothing to compare to."""
    from opspan.views.page.document import document
    from opspan.views.page.report import subject_of

    out.write_text(document(subject_of(analysis)), encoding="utf-8")
    return []
