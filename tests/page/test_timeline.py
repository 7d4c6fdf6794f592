"""The timeline in a browser: what people do with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from analysis.frames import ranges
from builders import training_files
from builders.training_plan import Plan
from opspan.tables import Metadata
from opspan.trace import Trace
from opspan.views.page import timeline
from page.browser import Browser, Opened
from page.timeline_read import shapes_of
from views.sources import nsys


@pytest.fixture(scope="module")
def trace(pages: Path) -> Trace:
    return training_files.load(pages, Plan(ranks=2, steps=3, item_per_step=True))


@pytest.fixture(scope="module")
def page(pages: Path, trace: Trace) -> Path:
    out = pages / "timeline.html"
    trace.report(out)
    return out


@pytest.fixture
def opened(browser: Browser, page: Path) -> Iterator[Opened]:
    with browser.open(page) as opened:
        opened.goto("timeline")
        yield opened


def panel(opened: Opened) -> str:
    return str(opened.at.locator(".timeline .panel").inner_text())


def title(opened: Opened) -> str:
    return str(opened.at.locator(".timeline .panel h3").inner_text())


def status(opened: Opened) -> str:
    return str(opened.at.locator(".timeline [role=status]").inner_text())


def press(opened: Opened, *keys: str) -> None:
    opened.at.locator(".timeline canvas.shapes").focus()
    for key in keys:
        opened.at.keyboard.press(key)


def window(opened: Opened) -> tuple[int, int]:
    """Returns the begin and the end of the view, from its address."""
    opened.at.get_by_role("button", name="Link to this view").click()
    found = re.search(r"from=(-?\d+)&to=(-?\d+)", opened.at.evaluate("location.hash"))
    assert found
    return int(found[1]), int(found[2])


def pixels(opened: Opened, count: str = "new Set(data).size") -> Any:
    """Something of the canvas' pixels, each a number."""
    opened.at.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return opened.at.evaluate(
        f"""() => {{
            const canvas = document.querySelector(".shapes");
            const other = document.createElement("canvas");
            [other.width, other.height] = [canvas.width, canvas.height];
            const context = other.getContext("2d", {{ willReadFrequently: true }});
            context.drawImage(canvas, 0, 0);
            const all = context.getImageData(0, 0, canvas.width, canvas.height).data;
            const data = new Uint32Array(all.buffer);
            return {count};
        }}"""
    )


def test_an_address_with_a_name_leads_to_its_first_shape(opened: Opened, trace: Trace) -> None:
    opened.goto("timeline?name=aten::addmm")
    opened.at.locator(".timeline .panel h3").wait_for(state="attached")
    count = (trace.ranges["name"] == "aten::addmm").sum()
    assert title(opened) == "aten::addmm"
    assert status(opened) == f"1 of {count}"
    first = trace.ranges.filter(pl.col("name") == "aten::addmm")["start_ns"].min()
    from_ns, to_ns = window(opened)
    assert from_ns <= first < to_ns


@pytest.mark.slow
def test_an_address_with_times_shows_that_window(opened: Opened, trace: Trace) -> None:
    begin = int(shapes_begin(trace))
    opened.goto(f"timeline?from={begin + 2_000_000}&to={begin + 3_000_000}")
    assert window(opened) == (begin + 2_000_000, begin + 3_000_000)


def shapes_begin(trace: Trace) -> int:
    starts = [frame["start_ns"].min() for frame in (trace.ranges, trace.calls, trace.work)]
    return min(start for start in starts if isinstance(start, int))


def test_an_address_with_a_rank_shows_its_lanes_only(opened: Opened) -> None:
    lanes = opened.at.locator(".timeline .names .lane")
    both = lanes.count()
    opened.goto("timeline?rank=1")
    groups = opened.at.locator(".timeline .names .group").all_inner_texts()
    assert len(groups) == 2
    assert all("rank 1" in group for group in groups)
    assert lanes.count() * 2 == both


def test_keys_choose_shapes_and_follow_arrows(opened: Opened) -> None:
    press(opened, "n")
    first = title(opened)
    press(opened, "j")
    assert title(opened) != first
    press(opened, "k")
    assert title(opened) == first
    opened.at.get_by_label("Find").fill("cudaLaunchKernel")
    opened.at.keyboard.press("Enter")
    assert title(opened) == "cudaLaunchKernel"
    press(opened, "l")
    assert title(opened) != "cudaLaunchKernel"
    assert "Launched by" in panel(opened)
    press(opened, "l")
    assert title(opened) == "cudaLaunchKernel"
    press(opened, "Escape")
    assert "Choose a shape" in panel(opened)


def test_a_backward_op_leads_to_its_forward(opened: Opened) -> None:
    opened.goto("timeline?name=AddmmBackward0")
    opened.at.locator(".timeline .panel h3").wait_for(state="attached")
    opened.at.locator(".panel button.link").first.click()
    assert title(opened) == "aten::addmm"
    assert "Its backward" in panel(opened)


def test_keys_wheel_and_drag_move_and_zoom(opened: Opened) -> None:
    whole = window(opened)
    press(opened, "w", "w")
    closer = window(opened)
    assert closer[1] - closer[0] < (whole[1] - whole[0]) * 0.7
    press(opened, "d")
    assert window(opened)[0] > closer[0]
    press(opened, "ArrowLeft")
    assert window(opened)[0] == pytest.approx(closer[0], abs=2)
    box = opened.at.locator("canvas.shapes").bounding_box()
    opened.at.mouse.move(box["x"] + 400, box["y"] + 60)
    opened.at.mouse.down()
    opened.at.mouse.move(box["x"] + 300, box["y"] + 60, steps=3)
    opened.at.mouse.up()
    assert window(opened)[0] > closer[0]
    before = window(opened)
    opened.at.mouse.move(box["x"] + 400, box["y"] + 60)
    opened.at.keyboard.down("Control")
    opened.at.mouse.wheel(0, -200)
    opened.at.keyboard.up("Control")
    opened.at.wait_for_timeout(50)
    after = window(opened)
    assert after[1] - after[0] < before[1] - before[0]
    press(opened, "0")
    assert window(opened) == whole


def test_a_link_to_a_view_changes_none_that_comes_after_it(opened: Opened) -> None:
    whole = window(opened)
    opened.at.evaluate(
        """async () => {
            const closer = () =>
                document.querySelector("canvas.shapes").dispatchEvent(new KeyboardEvent("keydown", { key: "w" }));
            const buttons = [...document.querySelectorAll(".finding button")];
            closer();
            buttons.find((button) => button.textContent === "Link to this view").click();
            closer();
            await new Promise((done) => setTimeout(done, 100));
        }"""
    )
    closer = window(opened)
    assert (whole[1] - whole[0]) / (closer[1] - closer[0]) == pytest.approx(1.25**2, abs=0.01)
    opened.at.go_back()
    opened.at.go_back()
    opened.at.wait_for_timeout(100)
    assert window(opened) == whole


def test_fitting_shows_no_more_than_the_shape(opened: Opened, trace: Trace) -> None:
    opened.goto("timeline?name=AddmmBackward0")
    opened.at.locator(".timeline .panel h3").wait_for(state="attached")
    press(opened, "f")
    from_ns, to_ns = window(opened)
    shapes = trace.ranges.filter(pl.col("name") == "AddmmBackward0").sort("start_ns")
    first = shapes.row(0, named=True)
    took = first["end_ns"] - first["start_ns"]
    assert from_ns < first["start_ns"]
    assert first["end_ns"] < to_ns
    assert to_ns - from_ns < 1.2 * took


def test_searching_counts_and_walks(opened: Opened, trace: Trace) -> None:
    field = opened.at.get_by_label("Find")
    field.fill("addmm")
    names = trace.ranges["name"].cast(pl.String).str.to_lowercase()
    inside = int(names.str.contains("addmm").sum())
    assert status(opened) == f"{inside} found"
    for place in (1, 2):
        opened.at.get_by_role("button", name="Next").click()
        assert status(opened) == f"{place} of {inside}"
    opened.at.get_by_role("button", name="Previous").click()
    assert status(opened) == f"1 of {inside}"
    opened.at.get_by_label("exact name").check()
    assert status(opened) == "none found"


def test_found_shapes_stand_out(opened: Opened) -> None:
    mark = "data.filter(pixel => pixel === 0xff6f00d0).length"  # #d0006f
    assert pixels(opened, mark) == 0
    opened.at.get_by_label("Find").fill("aten::addmm")
    assert pixels(opened, mark) > 10


def test_lanes_fold_and_unfold(opened: Opened) -> None:
    lane = opened.at.locator(".timeline .names .lane[aria-expanded=true]").first
    height = lane.bounding_box()["height"]
    lane.click()
    folded = opened.at.locator(".timeline .names .lane[aria-expanded=false]").first
    assert folded.bounding_box()["height"] < height
    count = opened.at.locator(".timeline .names button").count()
    opened.at.locator(".timeline .names .group").first.press("Enter")
    assert opened.at.locator(".timeline .names button").count() < count


def test_the_panel_says_what_the_tables_say(opened: Opened, trace: Trace) -> None:
    kernel = trace.work.filter(pl.col("kind") == "kernel").sort("start_ns").row(0, named=True)
    opened.goto(f"timeline?name={kernel['name']}".replace("<", "%3C").replace(">", "%3E").replace(" ", "%20"))
    opened.at.locator(".timeline .panel h3").wait_for(state="attached")
    assert title(opened) == kernel["name"]
    took = kernel["end_ns"] - kernel["start_ns"]
    assert f"{took / 1000:.3f} µs" in panel(opened)
    assert f"{kernel['correlation_id']}" in panel(opened)
    assert f"{(kernel['start_ns'] - shapes_begin(trace)) / 1000:.3f} µs of the trace" in panel(opened)


@pytest.mark.slow
def test_waits_and_idle_devices_are_hatched_and_named(opened: Opened) -> None:
    legend = opened.at.locator(".timeline .legend").inner_text()
    assert "Waits (hatched)" in legend
    assert "Device idle (hatched)" in legend
    opened.at.get_by_label("Find").fill("idle: ")
    opened.at.keyboard.press("Enter")
    assert title(opened).startswith("idle: ")


@pytest.mark.slow
def test_dark_and_light_have_grounds_of_their_own(opened: Opened) -> None:
    ground = "data[data.length - 3]"
    light = pixels(opened, ground)
    opened.at.get_by_role("button", name="Light / dark").click()
    assert pixels(opened, ground) != light


@pytest.mark.slow
def test_it_fits_after_a_resize(browser: Browser, page: Path) -> None:
    with browser.open(page) as opened:
        opened.goto("timeline")
        before = opened.at.evaluate("document.querySelector('.shapes').width")
        opened.at.set_viewport_size({"width": 800, "height": 900})
        opened.at.wait_for_function("width => document.querySelector('.shapes').width < width", arg=before)
        assert opened.at.evaluate("document.documentElement.scrollWidth") <= 800
        assert pixels(opened) > 10


@pytest.mark.slow
def test_names_are_text_whatever_they_hold(browser: Browser, pages: Path) -> None:
    out = pages / "hostile-timeline.html"
    long = "long " + "y" * 10_000
    opspan.load(nsys(pages / "hostile-timeline.sqlite")).report(out)
    with browser.open(out) as opened:
        opened.goto("timeline")
        opened.at.get_by_label("Find").fill("</script>")
        opened.at.keyboard.press("Enter")
        assert "</script>" in title(opened)
        assert "\\x1b[31m" in title(opened)
    made = Trace((Metadata("nsys"),), ranges=ranges((long, 1, 2), ("short", 2, 3)))
    made.report(pages / "long.html")
    with browser.open(pages / "long.html") as opened:
        opened.goto(f"timeline?name={long}")
        opened.at.locator(".timeline .panel h3").wait_for(state="attached")
        assert title(opened).startswith("long yyy")
        assert opened.at.evaluate("document.documentElement.scrollWidth") <= 1280


def test_ranges_that_are_drawn_together_are_counted(
    browser: Browser, pages: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_SHAPES", 500)
    trace.report(pages / "merged.html")
    with browser.open(pages / "merged.html") as opened:
        opened.goto("timeline")
        said = opened.at.locator(".timeline .notes").inner_text()
        assert re.search(r"Shapes under [\d.]+ .s are drawn together with their neighbours: [\d,]+ of [\d,]+\.", said)
        assert "--between START END" in said
        opened.at.get_by_label("Find").fill("aten::addmm")
        opened.at.get_by_label("exact name").check()
        found = re.fullmatch(
            r"(none|[\d,]+) found; ([\d,]+) more are among ranges that are drawn together", status(opened)
        )
        assert found
        shown = 0 if found[1] == "none" else int(found[1])
        assert shown + int(found[2]) == (trace.ranges["name"] == "aten::addmm").sum()


@pytest.mark.slow
def test_one_shape_and_marks_are_shown(browser: Browser, pages: Path) -> None:
    one = Trace((Metadata("nsys"),), ranges=ranges({"name": "here", "start_ns": 5, "is_mark": True}))
    one.report(pages / "one.html")
    with browser.open(pages / "one.html") as opened:
        opened.goto("timeline")
        press(opened, "n")
        assert title(opened) == "here"
        assert "a point in time" in panel(opened)
        assert pixels(opened) > 3


def test_the_page_draws_what_was_written(opened: Opened, trace: Trace) -> None:
    data = timeline.section(timeline.Subject(trace.analysed)).data
    assert data is not None
    label = opened.at.locator("canvas.shapes").get_attribute("aria-label")
    assert label == f"Timeline of {len(shapes_of(data)):,} shapes in {len(data['lanes'])} lanes"
    assert "opspan export" in opened.at.locator(".timeline code").last.inner_text()
