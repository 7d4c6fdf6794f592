"""What this is, where its time went, and what is wrong with it."""

from __future__ import annotations

from opspan.analysis.busy import KINDS
from opspan.views.page.columns import values
from opspan.views.page.section import Section, Subject
from opspan.views.steps import rows_of

_TITLES = {
    "computing": "Computing",
    "copying": "Copies",
    "filling": "Fills",
    "communicating": "Collectives",
    "calling": "API calls",
    "loading": "Data loading",
    "ops": "Ops on the host",
    "other": "Other",
}


def section(subject: Subject) -> Section:
    steps = rows_of(subject.found)
    kinds = [kind for kind in KINDS if steps[f"{kind}_ns"].sum()]
    return Section(
        "Overview",
        {
            "cards": [],
            "steps": {
                "step": values(steps["step"]),
                "kinds": [{"name": kind, "title": _TITLES[kind], "ns": values(steps[f"{kind}_ns"])} for kind in kinds],
            },
        },
    )
