"""The frame around the sections: what is true of every page."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from emit.running import opspan as run_opspan
from page.browser import SCHEMES, WIDTHS, Browser
from page.faults import grave_faults
from views.sources import HOSTILE, nsys


@pytest.fixture(scope="module")
def page(pages: Path) -> Path:
    out = pages / "frame.html"
    opspan.load(nsys(pages / "frame.sqlite")).report(out)
    return out


def test_every_section_opens_without_a_request_or_a_complaint(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        for link in opened.at.locator("nav a").all():
            link.click()
            assert link.get_attribute("aria-current") == "page"
            opened.goto((link.get_attribute("href") or "")[1:])


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(browser: Browser, page: Path, width: int) -> None:
    with browser.open(page, width=width) as opened:
        for link in opened.at.locator("nav a").all():
            opened.goto((link.get_attribute("href") or "")[1:])
            assert opened.at.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_kept_out(browser: Browser, page: Path, scheme: str) -> None:
    with browser.open(page, scheme=scheme) as opened:
        for link in opened.at.locator("nav a").all():
            opened.goto((link.get_attribute("href") or "")[1:])
            assert grave_faults(opened) == []


def test_names_show_as_text_whatever_they_hold(browser: Browser, page: Path) -> None:
    shown = HOSTILE.encode("unicode_escape").decode()  # as printable() has it
    with browser.open(page) as opened:
        opened.goto("operators")
        assert opened.at.get_by_text("</script>").first.is_visible()
        assert "\\x1b[31m" in shown
        assert opened.at.get_by_text("\\x1b[31m").first.is_visible()


def test_light_and_dark_change_places(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        ground = "getComputedStyle(document.body).backgroundColor"
        light = opened.at.evaluate(ground)
        opened.at.get_by_role("button", name="Light / dark").click()
        assert opened.at.evaluate(ground) != light


def test_the_command_says_what_it_wrote_and_replaces_nothing(tmp_path: Path) -> None:
    source = nsys(tmp_path / "a.sqlite")
    out = tmp_path / "out.html"
    done = run_opspan("report", source, "-o", out)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Wrote {out} (")
    before = out.read_bytes()
    again = run_opspan("report", source, "-o", out)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert out.read_bytes() == before
