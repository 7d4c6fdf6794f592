"""Flame graphs against the .stacks of the same trace, which tests/views/test_stacks.py has against a twin."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

import opspan
from builders.capture import Capture
from opspan.printable import shortened
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views import flame_graph, icicle
from page.browser import Browser
from readers.samples import samples
from views.sources import HOSTILE, capture, nsys

SVG = "{http://www.w3.org/2000/svg}"
ROW = 18
WIDEST_CHARACTER = 0.602 * 12  # in the fonts of the picture, according to their files
ROUNDED = 0.011  # pixels: two decimals are written


@dataclass
class Drawn:
    group: str
    x: float
    y: int
    width: float
    ns: int
    name: str  # the first line of the tooltip
    text: str  # the text in the box

    @property
    def end(self) -> float:
        return self.x + self.width


def drawn(path: Path) -> dict[str, list[Drawn]]:
    """The boxes of each icicle, by its title, with those around before those inside."""
    found: dict[str, list[Drawn]] = {}
    for element in ET.parse(path).getroot():
        if element.tag == f"{SVG}text" and (title := re.match(r"(Host|Device) time: [\d.]+\w+$", element.text or "")):
            found[title[1]] = boxes = []
        elif "data-ns" in element.attrib:
            said, text = element.findtext(f"{SVG}title", ""), element.findtext(f"{SVG}text", "")
            place = float(element.attrib["x"]), int(element.attrib["y"]), float(element.attrib["width"])
            group = element.attrib["class"].split()[1]
            boxes.append(Drawn(group, *place, int(element.attrib["data-ns"]), said.split("\n")[0], text))
    return {title: sorted(boxes, key=lambda box: box.y) for title, boxes in found.items()}


def stacks_of(boxes: list[Drawn]) -> Counter[tuple[str, ...]]:
    """The time of each stack, told by what lies below what."""
    found: Counter[tuple[str, ...]] = Counter()
    above: list[tuple[Drawn, tuple[str, ...]]] = []
    for y in sorted({box.y for box in boxes}):
        level = [box for box in boxes if box.y == y]
        here = []
        for box in level:
            around = [
                path for other, path in above if other.x - ROUNDED <= box.x and box.end <= other.end + 2 * ROUNDED
            ]
            assert len(around) == 1 or y == min(box.y for box in boxes), box
            path = (*around[0], box.name) if around else (box.name,)
            here.append((box, path))
            if box.group != "merged":
                found[path] += box.ns
        above = [(box, path) for box, path in here if box.group != "merged"]
        beside = sorted(level, key=lambda box: box.x)
        assert all(one.end <= other.x + ROUNDED for one, other in pairwise(beside))
    return found


def whole_stacks(path: Path) -> Counter[tuple[str, ...]]:
    """The lines of a .stacks file, each added to all stacks around it; names as long as a tooltip has them."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text().splitlines():
        stack, _, ns = line.rpartition(" ")
        frames = tuple(shortened(frame, 500) for frame in stack.split(";"))
        for level in range(len(frames)):
            found[frames[: level + 1]] += int(ns)
    return found


def safe(name: str) -> str:
    """As a .stacks file has a name whose odd characters are escapes in the picture."""
    return re.sub(r"\\x1b|\\n|\\u2028|;", "_", name)


def check(trace: Trace, folder: Path) -> dict[str, list[Drawn]]:
    """Each box that is drawn has the time of its stack, and its width; what is not drawn is too small."""
    trace.export(folder / "out.svg")
    found = drawn(folder / "out.svg")
    for title, suffix in (("Host", ".stacks"), ("Device", ".device.stacks")):
        trace.export(folder / f"out{suffix}")
        expected = whole_stacks(folder / f"out{suffix}")
        boxes = found.get(title, [])
        assert bool(boxes) == bool(expected)
        whole = sum(ns for stack, ns in expected.items() if len(stack) == 1)
        shown = {tuple(map(safe, stack)): ns for stack, ns in stacks_of(boxes).items()}
        assert shown.items() <= expected.items()
        assert all(ns < whole * icicle.LEAST_SHARE + 1 for stack, ns in expected.items() if stack not in shown)
        for box in boxes:
            assert box.width == pytest.approx((flame_graph.WIDTH - 20) * box.ns / whole, abs=ROUNDED)
            assert not box.text or len(box.text) * WIDEST_CHARACTER <= box.width, box
    return found


@pytest.mark.parametrize("make", [nsys, capture])
def test_made_traces(make: Callable[[Path], Path], tmp_path: Path) -> None:
    found = check(opspan.load(make(tmp_path / "source")), tmp_path)

    assert {"op", "backward", "range", "place"} <= {box.group for box in found["Host"]}
    assert ("Device" in found) == (make is nsys)


@pytest.mark.slow
@pytest.mark.parametrize("what", samples())
def test_every_source(what: str, tmp_path: Path) -> None:
    check(opspan.load(samples()[what](tmp_path)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "nsys/train_fsdp_2gpu.sqlite",
        "nvprof/lm_emit_nvtx.sql",
        "kineto/b200_eager.json.gz",
        "kineto/mi300_ddp_resnet18.json.gz",
        "rocpd/torch_autograd.rpd",
        "vtune/r010hs_tasks/r010hs",
    ],
)
def test_real_traces(name: str, traces_dir: Path, tmp_path: Path) -> None:
    found = check(opspan.load(traces_dir / name), tmp_path)

    assert any(box.text for box in found["Host"])
    assert (tmp_path / "out.svg").stat().st_size < 2_000_000


def named(names: list[str], folder: Path, each_ns: int = 1000) -> Trace:
    made = Capture(pid=1)
    thread = made.thread(1)
    for number, name in enumerate(names):
        thread.range(name, number * each_ns, (number + 1) * each_ns)
    return opspan.load(made.write(folder / "1-1.opspan"))


NAMES = [
    HOSTILE,
    "</title><script>alert(1)</script>",
    "]]> <![CDATA[ &amp; & <!-- -->",
    "\u202egnp.exe\u2066",
    "".join(map(chr, range(1, 32))) + "\x7f\x85\ufffe",
    "x" * 10_000,
    "漢字" * 50,
]


def test_names_are_texts_whatever_they_hold(tmp_path: Path) -> None:
    named(NAMES, tmp_path).export(tmp_path / "out.svg")

    text = (tmp_path / "out.svg").read_text()
    boxes = drawn(tmp_path / "out.svg")["Host"]
    tags = {element.tag.removeprefix(SVG) for element in ET.parse(tmp_path / "out.svg").iter()}
    assert tags == {"svg", "title", "style", "rect", "text"}
    assert all(char == "\n" or char.isprintable() for char in text)
    assert {r"\u202egnp.exe\u2066", NAMES[1], NAMES[2]} <= {box.name for box in boxes}
    assert f"{'x' * 500}... (9,500 characters more)" in {box.name for box in boxes}
    wide = next(box for box in boxes if box.name.startswith("漢"))
    assert 2 * len(wide.text) - 3 <= wide.width / WIDEST_CHARACTER < len(wide.name)


def test_small_boxes_are_merged_which_is_said_and_no_time_is_lost(tmp_path: Path) -> None:
    made = Capture(pid=1)
    thread = made.thread(1)
    thread.range("step", 0, 4_000_000)
    for number in range(3000):
        thread.range(f"small {number}", number * 1000, number * 1000 + 500)
    thread.range("large", 3_500_000, 4_000_000)
    trace = opspan.load(made.write(tmp_path / "1-1.opspan"))

    said = trace.export(tmp_path / "out.svg")

    merged = [box for box in drawn(tmp_path / "out.svg")["Host"] if box.group == "merged"]
    assert [(box.name, box.ns) for box in merged] == [("3,000 smaller", 1_500_000)]
    assert said[0].startswith("Host time: 3,000 boxes of less than 4.000us are merged")
    assert "Host time: 3,000 boxes of less than 4.000us are merged" in (tmp_path / "out.svg").read_text()


@pytest.mark.slow
def test_a_file_is_small_whatever_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icicle, "MOST_BOXES", 500)
    made = Capture(pid=1)
    thread = made.thread(1, chunk_units=200_000)
    for number in range(200):
        for depth in range(20):
            thread.range(f"{number} at {depth} {'x' * 400}", number * 1000 + depth, (number + 1) * 1000 - depth)
    trace = opspan.load(made.write(tmp_path / "1-1.opspan"))

    trace.export(tmp_path / "out.svg")

    boxes = drawn(tmp_path / "out.svg")["Host"]
    assert len([box for box in boxes if box.group != "merged"]) <= 500
    assert (tmp_path / "out.svg").stat().st_size < 600_000
    assert boxes[0].ns == trace.analysed.attributed.ranges["self_ns"].sum()


def test_an_empty_trace_is_a_picture_that_says_so(tmp_path: Path) -> None:
    said = Trace((Metadata("test"),)).export(tmp_path / "out.svg")

    shown = " ".join(element.text or "" for element in ET.parse(tmp_path / "out.svg").iter(f"{SVG}text"))
    assert said == [shown]
    assert shown.startswith("No range has CPU time")


def luminance(colour: str) -> float:
    """WCAG 2, "relative luminance"."""
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("group", [group for group in flame_graph.GROUPS if group.fill != "none"], ids=lambda g: g.name)
def test_text_can_be_read_on_its_colour(group: flame_graph.Group) -> None:
    one, other = sorted((luminance(group.fill), luminance(group.ink)))
    assert (other + 0.05) / (one + 0.05) >= 4.5  # WCAG 2, level AA


# Measures in a browser: the widths of texts, and colours as numbers.
WIDTHS = """() => [...document.querySelectorAll("svg svg text")].map(
    text => [text.getComputedTextLength() + text.x.baseVal[0].value, text.parentNode.width.baseVal.value])"""
COLOUR = """name => getComputedStyle(document.querySelector(name)).fill.match(/\\d+/g)
    .map(part => Number(part).toString(16).padStart(2, "0")).join("")"""


@pytest.mark.slow
def test_in_a_browser_texts_fit_and_colours_follow_what_the_user_prefers(browser: Browser, tmp_path: Path) -> None:
    named([*NAMES, *(f"aten::op{number}" for number in range(6))], tmp_path).export(tmp_path / "a.svg")

    pages = []
    for scheme in ("light", "dark"):
        with browser.at((tmp_path / "a.svg").as_uri(), scheme=scheme) as page:
            widths = page.at.evaluate(WIDTHS)
            assert len(widths) > 12
            assert all(text <= box for text, box in widths)
            colour, said = (f"#{page.at.evaluate(COLOUR, name)}" for name in (".page", ".said"))
            assert abs(luminance(colour) - luminance(said)) > 0.6
            pages.append(colour)
    assert luminance(pages[0]) > 0.9 > 0.1 > luminance(pages[1])
