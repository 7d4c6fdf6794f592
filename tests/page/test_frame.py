"""The frame around the sections: what is true of every page."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import opspan
from builders import kineto, nvprof, vtune
from builders.training_files import load
from builders.training_plan import Plan
from emit.running import opspan as run_opspan
from page.browser import SCHEMES, WIDTHS, Browser
from page.faults import grave_faults
from tiers import RELEASE
from views.sources import HOSTILE, capture, nsys


def _ranks(folder: Path) -> opspan.Trace:
    return load(folder / "ranks", Plan(ranks=2, straggler=(1, 1.5), steps=4, layers=2))


SOURCES: dict[str, Callable[[Path], opspan.Trace]] = {
    "nsys": lambda folder: opspan.load(nsys(folder / "frame.sqlite")),
    "nvprof": lambda folder: opspan.load(nvprof.run(folder / "frame.prof", 26)),
    "torch.profiler": lambda folder: opspan.load(kineto.write(folder / "frame.json")),
    "VTune": lambda folder: opspan.load(vtune.run(folder / "r000hs", "2024")),
    "capture": lambda folder: opspan.load(capture(folder / "frame.opspan")),
    "ranks": _ranks,
}
SEEN = [*itertools.product(WIDTHS, SCHEMES)]
QUICK = [("nsys", 1280, "light"), ("nsys", 390, "dark")]
SLOW = [(1280, "light"), (390, "dark")]  # each width and each scheme; both in both before a release
EVERY = [
    pytest.param(name, *seen, marks=[] if (name, *seen) in QUICK else [pytest.mark.slow] if seen in SLOW else RELEASE)
    for name in SOURCES
    for seen in SEEN
]


@pytest.fixture(scope="module")
def page_of(pages: Path) -> Callable[[str], Path]:
    """A page of a source; that of two ranks compares them with a run in which no rank is late."""
    made: dict[str, Path] = {}

    def page(name: str) -> Path:
        if name not in made:
            out = pages / f"frame of {name}.html"
            before = load(pages / "before", Plan(ranks=2, steps=4, layers=2)) if name == "ranks" else None
            SOURCES[name](pages).report(out, against=before)
            made[name] = out
        return made[name]

    return page


@pytest.fixture(scope="module")
def page(page_of: Callable[[str], Path]) -> Path:
    return page_of("nsys")


def test_each_link_opens_its_section(browser: Browser, page: Path) -> None:
    from playwright.sync_api import expect

    with browser.open(page) as opened:
        for link in opened.at.locator("nav a").all():
            link.click()
            expect(link).to_have_attribute("aria-current", "page")  # soon after: the address changes first
            opened.goto((link.get_attribute("href") or "")[1:])


@pytest.mark.parametrize(("name", "width", "scheme"), EVERY)
def test_every_section_fits_keeps_nobody_out_and_asks_for_nothing(
    browser: Browser, page_of: Callable[[str], Path], name: str, width: int, scheme: str
) -> None:
    with browser.open(page_of(name), width=width, scheme=scheme) as opened:
        for link in opened.at.locator("nav a").all():
            section = (link.get_attribute("href") or "")[1:]
            opened.goto(section)
            opened.at.evaluate(_DRAWN)
            assert opened.at.get_by_text("This part cannot be shown").count() == 0, section
            assert opened.at.evaluate("document.documentElement.scrollWidth") <= width, section
            assert grave_faults(opened) == [], section
            if "OPSPAN_SCREENSHOTS" in os.environ:
                opened.shot(f"{name}-{section}-{width}-{scheme}")


# Plots are drawn when the size of their place is known: two frames later at most.
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"


def test_names_show_as_text_whatever_they_hold(browser: Browser, page: Path) -> None:
    shown = HOSTILE.encode("unicode_escape").decode()  # as printable() has it
    with browser.open(page) as opened:
        opened.goto("operators")
        opened.at.get_by_text("</script>").first.wait_for()
        assert "\\x1b[31m" in shown
        opened.at.get_by_text("\\x1b[31m").first.wait_for()


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
