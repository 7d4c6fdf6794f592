"""What axe finds that keeps people out: serious and critical faults of accessibility."""

from __future__ import annotations

from page.browser import Opened

_GRAVE = {"serious", "critical"}


def grave_faults(page: Opened) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page.at).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:120]}"
        for fault in found
        if fault["impact"] in _GRAVE
        for node in fault["nodes"]
    ]
