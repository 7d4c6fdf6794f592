"""The two pictures of README.md. To make them anew:

OPSPAN_SCREENSHOTS=docs/images python -m pytest -n0 tests/page/test_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from builders.training import run
from builders.training_files import kineto_files
from builders.training_plan import Plan
from page.browser import Browser

REPO = Path(__file__).resolve().parents[2]
SIZE = (1280, 800)


@pytest.fixture(scope="module")
def page(pages: Path) -> Path:
    """A run that reads its loss in every step, and has a step that waits for something else."""
    (pages / "pictures").mkdir()
    plan = Plan(steps=8, layers=6, item_per_step=True, stalls={5: 2_000_000})
    (made,) = kineto_files(pages / "pictures", run(plan))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(pages / "pictures")  # the page says commands with the path as it was given
        path = made.rename("train.pt.trace.json")
        opspan.load(path).report("report.html")
    return pages / "pictures" / "report.html"


@pytest.mark.slow
@pytest.mark.parametrize("section", ["overview", "timeline"])
def test_readme_shows_the_page_as_it_is(browser: Browser, page: Path, section: str) -> None:
    width, height = SIZE
    with browser.open(page, width=width, height=height) as opened:
        opened.goto(section)
        opened.at.wait_for_timeout(500)  # plots are as wide as their place once they know it
        made = opened.shot(section)

    shown = REPO / "docs" / "images" / f"{section}.png"
    assert f"docs/images/{section}.png" in (REPO / "README.md").read_text(encoding="utf-8")
    assert size_of(shown) == size_of(made) == SIZE


def size_of(picture: Path) -> tuple[int, int]:
    """Returns the size of a PNG, from its head."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
