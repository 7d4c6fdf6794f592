"""Serious and critical faults of accessibility that axe finds."""

from __future__ import annotations

from page.browser import Opened

_GRAVE = {"serious", "critical"}
_RUN = "axe.run({ resultTypes: ['violations'] }).then((found) => found.violations)"


def grave_faults(page: Opened) -> list[str]:
    """Returns the faults in the visible part. axe is half a megabyte of script, so each page gets it once, not per
    section."""
    from axe_playwright_python.base import AXE_SCRIPT

    if not page.at.evaluate("'axe' in window"):
        page.at.evaluate(AXE_SCRIPT)
    return [
        f"{fault['id']}: {node['html'][:120]}"
        for fault in page.at.evaluate(_RUN)
        if fault["impact"] in _GRAVE
        for node in fault["nodes"]
    ]
