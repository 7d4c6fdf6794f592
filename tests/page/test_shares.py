"""Every share that a page shows says of what it is one, and shares of one whole are the parts that its times say."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from opspan.views.page.document import page_parts
from page.browser import Browser
from page.shares import assert_shares, seen_in, subject_of
from real_files import in_parts, traces_of

# A file, and the time of all its kernels.
REAL = {
    "nsys/train_fsdp_2gpu.sqlite": "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "nvprof/lm_emit_nvtx.sql": "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "rocpd/matmul_result_large.rpd": """
        SELECT sum(end - start) FROM rocpd_op JOIN rocpd_string AS s ON s.id = opType_id
        WHERE string = 'KernelExecution'
    """,
    "kineto/norm_layers.json.gz": "",
}
SECTIONS = ("overview", "operators", "kernels", "modules")


def wholes_of(browser: Browser, page: Path) -> dict[str, dict[str, float]]:
    found = {}
    with browser.open(page) as opened:
        for section in SECTIONS:
            found[section] = assert_shares(seen_in(opened, section), section)
    return found


def test_shares_of_a_page(browser: Browser, tmp_path: Path) -> None:
    trace = load(tmp_path / "run", Plan(steps=6))
    trace.report(tmp_path / "page.html")
    wholes = wholes_of(browser, tmp_path / "page.html")
    assert set(wholes["overview"]) == {
        "the average step",
        "the idle time",
        "the time of all ops",
        "the time of all modules",
    }
    assert set(wholes["kernels"]) == {"the time of all kernels"}
    assert wholes["overview"]["the idle time"] == pytest.approx(trace.idle("device")["time_ns"].sum(), rel=1e-3)


@pytest.mark.parametrize("name", REAL)
def test_shares_of_pages_of_real_files(name: str, browser: Browser, traces_dir: Path, tmp_path: Path) -> None:
    if not (traces_dir / name).exists():
        pytest.skip(f"{name} is not among the recorded traces")
    opspan.load(traces_dir / name).report(tmp_path / "page.html")
    wholes = wholes_of(browser, tmp_path / "page.html")
    if not REAL[name]:
        return
    with closing(sqlite3.connect(f"file:{traces_dir / name}?mode=ro", uri=True)) as file:
        (kernels_ns,) = file.execute(REAL[name]).fetchone()
    assert wholes["kernels"]["the time of all kernels"] == pytest.approx(kernels_ns, rel=1e-3)


def test_frames_and_details_say_of_what_their_shares_are(browser: Browser, tmp_path: Path) -> None:
    load(tmp_path / "run", Plan(steps=3)).report(tmp_path / "page.html")
    with browser.open(tmp_path / "page.html") as opened:
        opened.goto("modules")
        frames = opened.at.locator(".flame-frame title")
        frames.first.wait_for(state="attached")
        assert all(re.search(r"\([0-9.]+% of all[,)]", frame.text_content() or "") for frame in frames.all())
        opened.goto("timeline?name=aten::mm")
        details = opened.at.locator("dl div").filter(has_text="Self time")
        details.wait_for()
        assert re.search(r"\([0-9.]+% of the duration\)", details.inner_text())


def tables_in(data: Any) -> Iterator[dict[str, Any]]:
    """Every table among what a section says, however deep it lies."""
    if isinstance(data, dict):
        if "columns" in data and "values" in data:
            yield data
        data = list(data.values())
    if isinstance(data, list):
        for one in data:
            if isinstance(one, dict | list):
                yield from tables_in(one)


def assert_adds_up(table: dict[str, Any], where: str) -> None:
    """The bars of a column, and shares of all rows, are together the whole; of a tree those of its outermost rows."""
    if any(" more " in note for note in table.get("notes", ())):
        return  # not all rows are in the page
    above = table.get("parent", [None] * len(table["values"][0]))
    for head, values in zip(table["columns"], table["values"], strict=True):
        rows = zip(values, above, strict=True)
        known = [value for value, parent in rows if value is not None and parent is None]
        if "of" in head:
            assert sum(known) == head["of"], (where, head)
        if head.get("help") in ("Of the time of all rows", "Of the time of all kernels") and any(known):
            assert sum(known) == pytest.approx(1), (where, head)


@pytest.mark.slow
@in_parts
def test_shares_of_every_section_of_real_files_add_up(part: int, traces_dir: Path) -> None:
    seen = set()
    for trace in traces_of(traces_dir, part):
        _, sections = page_parts(subject_of(trace, trace))
        for name, data in sections.items():
            for table in tables_in(data):
                assert_adds_up(table, f"{trace!r}: {name}")
                seen.add(name)
    assert seen >= {"overview", "operators", "kernels", "distributed", "compare"}
