"""A real browser that opens pages, and keeps what they ask for and complain of.

    with browser.open(path, width=390, scheme="dark") as page:
        page.goto("operators")
        page.at.get_by_label("Filter").fill("mm")
    # on leaving: a request, or anything on the console, fails the test

`page.at` is playwright's Page. OPSPAN_SCREENSHOTS names a folder for pictures that somebody wants to look at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
_QUIET = (
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Opened:
    """A page that is open."""

    def __init__(self, at: Any, shots: Path) -> None:
        self.at = at
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._shots = shots
        at.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        at.on("pageerror", lambda error: self.complaints.append(str(error)))
        at.on("request", lambda request: self.requests.append(request.url))

    def goto(self, address: str) -> None:
        """Open a section, such as `operators` or `timeline?name=aten::mm`, and wait until it is drawn."""
        # The page follows its address a moment after that has changed.
        self.at.evaluate(
            """address => new Promise((followed) => {
                if (location.hash === `#${address}`) return followed();
                addEventListener("hashchange", () => setTimeout(followed), { once: true });
                location.hash = address;
            })""",
            address,
        )
        section = self.at.locator(f"#section-{address.partition('?')[0]}")
        section.wait_for(state="visible")
        section.locator(".content > *:not(.unpacking)").first.wait_for(state="attached")

    def shot(self, name: str) -> Path:
        """A picture of what is seen now."""
        path = self._shots / f"{name}.png"
        self.at.screenshot(path=path)
        return path


class Browser:
    def __init__(self, chromium: Any, folder: Path) -> None:
        self._chromium = chromium
        self._folder = Path(os.environ.get("OPSPAN_SCREENSHOTS") or folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def open(self, page: Path, *, width: int = 1280, height: int = 900, scheme: str = "light") -> Iterator[Opened]:
        address = page.resolve().as_uri()
        with self.at(address, width=width, height=height, scheme=scheme) as opened:
            opened.at.locator(".page").wait_for()
            yield opened
            assert {url.partition("#")[0] for url in opened.requests} == {address}

    @contextmanager
    def at(
        self,
        address: str,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        complains: tuple[str, ...] = (),
    ) -> Iterator[Opened]:
        """A page on a server. `complains`: what may be on its console all the same."""
        context = self._chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        try:
            opened = Opened(context.new_page(), self._folder)
            opened.at.goto(address)
            yield opened
            assert [said for said in opened.complaints if not any(part in said for part in complains)] == []
            assert {urlsplit(url).netloc for url in opened.requests} == {urlsplit(address).netloc}
        finally:
            context.close()


@contextmanager
def started(folder: Path) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_QUIET))
        try:
            yield Browser(chromium, folder)
        finally:
            chromium.close()
