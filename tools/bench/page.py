"""Measures the page of `opspan report`: the time to write it, its size, and how smooth its timeline is.

    python tools/bench/page.py                100 thousand and 3 million rows of an nsys export that nsys_files.py makes
    python tools/bench/page.py --rows 200000  200,000 rows only

Chromium opens the page without a screen and without a graphics card. The time of a frame is the time between two calls
of requestAnimationFrame, while the timeline is dragged and zoomed without a pause. "First content" is the time from
opening the page until its overview is drawn. "First frame" is the time from opening the page at its timeline until the
timeline is drawn.
"""

from __future__ import annotations

import argparse
import compileall
import statistics
import sys
import tempfile
import time
from pathlib import Path

import nsys_files
from figures import figure, title

import opspan

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "page"))
from browser import started

_CONTENT = """async () => {
    const drawn = () => performance.getEntriesByName("drawn overview")[0];
    while (!drawn()) await new Promise(requestAnimationFrame);
    return drawn().startTime;
}"""
_FIRST = """async () => {
    while (!document.querySelector(".shapes")?.width) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now();
}"""
# Zooms and moves the timeline before each of 240 frames. Returns the time of each frame in ms.
_FRAMES = """async () => {
    const canvas = document.querySelector(".shapes");
    const box = canvas.getBoundingClientRect();
    const place = { clientX: box.left + box.width / 3, clientY: box.top + 50, bubbles: true, cancelable: true };
    const took = [];
    let before = await new Promise(requestAnimationFrame);
    for (let frame = 0; frame < 240; frame++) {
        const zoom = frame % 80 < 40 ? -25 : 25;
        canvas.dispatchEvent(new WheelEvent("wheel", { ...place, deltaY: zoom, ctrlKey: true }));
        canvas.dispatchEvent(new WheelEvent("wheel", { ...place, deltaX: frame % 40 < 20 ? 30 : -30 }));
        const now = await new Promise(requestAnimationFrame);
        took.push(now - before);
        before = now;
    }
    return took;
}"""


def measure(folder: Path, rows: int) -> None:
    source = nsys_files.sqlite(
        folder / "run.sqlite", nsys_files.Size(ranges=rows // 3, calls=rows // 3, work=rows // 3)
    )
    out = folder / "run.html"
    began = time.perf_counter()
    trace = opspan.load(source)
    _ = trace.analysed.complete
    loading = time.perf_counter() - began
    began = time.perf_counter()
    trace.report(out)
    writing = time.perf_counter() - began
    size = out.stat().st_size
    with started(folder) as browser, browser.open(out) as opened:
        content = opened.at.evaluate(_CONTENT)
        opened.at.goto(out.as_uri() + "#timeline")
        opened.at.reload()
        first = opened.at.evaluate(_FIRST)
        took = opened.at.evaluate(_FRAMES)
        shapes = opened.at.locator(".shapes").get_attribute("aria-label")
    source.unlink()
    title(f"the page of {rows:,} rows", f"load and analyse {loading:.2f} s. {shapes}")
    figure("to write it, of loading", writing / loading, beside=f"{writing:.2f} s", most=1.5)
    figure("its size", size / 1e6, "MB", beside=f"{size:,} bytes", most=8)
    figure("first content: the overview", content, "ms", most=3000)
    figure("first frame of the timeline", first, "ms")
    rate, mean = 1000 / statistics.median(took), 1000 / statistics.mean(took)
    figure("frames of the timeline", rate, "a second", beside=f"mean {mean:.0f}", least=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=0)
    options = parser.parse_args()
    # Compile the modules now, as pip does at installation. Otherwise the first run in a source tree would compile them.
    compileall.compile_dir(Path(opspan.__file__).parent, quiet=1)
    for rows in [options.rows] if options.rows else [100_000, 3_000_000]:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), rows)


if __name__ == "__main__":
    main()
