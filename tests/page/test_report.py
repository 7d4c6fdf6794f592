"""The page as a file, in a notebook's frame, and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from emit.running import opspan as run_opspan
from opspan.errors import WriteError
from page.browser import Browser
from views.sources import capture, nsys

PAPER = 760  # pixels: width.ts


@pytest.fixture(scope="module")
def trace(pages: Path) -> opspan.Trace:
    return opspan.load(nsys(pages / "report.sqlite"))


def test_the_command_the_method_and_the_export_write_the_same_page(trace: opspan.Trace, pages: Path) -> None:
    out = pages / "by method.html"
    shown = trace.report(out)
    trace.export(pages / "by export.html")

    assert shown.html == out.read_text(encoding="utf-8") == (pages / "by export.html").read_text(encoding="utf-8")
    done = run_opspan("report", pages / "report.sqlite", "-o", pages / "by command.html")
    assert done.returncode == 0, done.stderr
    assert (pages / "by command.html").read_text(encoding="utf-8") == shown.html


def test_it_is_never_written_over_what_it_is_about(trace: opspan.Trace, pages: Path) -> None:
    with pytest.raises(WriteError, match="never replaced"):
        trace.report(pages / "report.sqlite", overwrite=True)
    other = opspan.load(capture(pages / "other.opspan"))
    with pytest.raises(WriteError, match="never replaced"):
        trace.report(pages / "other.opspan", against=other, overwrite=True)


def test_an_editor_is_an_address(pages: Path) -> None:
    done = run_opspan("report", pages / "report.sqlite", "-o", pages / "no.html", "--editor", "vim")
    assert done.returncode == 2
    assert "--editor is an address with {file} and {line} in it" in done.stderr
    assert not (pages / "no.html").exists()


def test_a_notebook_shows_it_in_a_frame(browser: Browser, trace: opspan.Trace, pages: Path) -> None:
    notebook = pages / "notebook.html"
    frame = trace.report()._repr_html_()
    notebook.write_text(f'<!doctype html><html lang="en"><title>n</title><div class="page">{frame}</div>')

    with browser.open(notebook) as opened:
        page = opened.at.frame_locator("iframe")
        page.get_by_role("link", name="Operators").click()
        page.locator("#section-operators").get_by_text("aten::addmm").first.wait_for()
        opened.requests = [url for url in opened.requests if url != "about:srcdoc"]


def test_paper_has_every_section(browser: Browser, trace: opspan.Trace, pages: Path) -> None:
    out = pages / "paper.html"
    trace.report(out)
    with browser.open(out) as opened:
        for unpacking in opened.at.locator(".unpacking").all():
            unpacking.wait_for(state="detached")
        # Drawings of sections that nobody has opened have the width of paper by then.
        drawings = opened.at.locator("main > section[hidden] svg")
        before = drawings.count()
        opened.at.pdf(path=pages / "paper.pdf", format="A4")
        assert before < drawings.count()
        widths = {int(drawing.get_attribute("width") or 0) for drawing in drawings.all()}
        assert widths == {PAPER}
        opened.at.emulate_media(media="print")
        sections = opened.at.locator("main > section")
        assert [section.is_visible() for section in sections.all()] == [True] * sections.count()
        assert not opened.at.locator("nav").is_visible()
