"""Every share that a page shows says of what it is one, and shares of one whole are the parts that its times say."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import opspan
from builders.training_files import load
from builders.training_plan import Plan
from page.browser import Browser

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
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
# Of each list with shares: what stands behind it, and its rows. Of each table: the heads of columns with a per cent.
LOOK = """section => {
    const lists = [...section.querySelectorAll("ol.bars, ul.legend")].map((list) => ({
        after: list.nextElementSibling?.textContent ?? "",
        isWhole: list.matches(".legend"),
        rows: [...list.children].map((row) => row.innerText),
    })).filter((list) => list.rows.some((row) => row.includes("%")));
    const heads = [...section.querySelectorAll("table")].flatMap((table) => {
        const heads = [...table.querySelectorAll("thead th")];
        const cells = [...table.querySelectorAll("tbody tr:not(.detail)")].map((row) => [...row.children]);
        return heads
            .filter((_, at) => cells.some((row) => /^[-+]?[0-9.]+%$/.test(row[at]?.textContent.trim() ?? "")))
            .map((head) => ({ title: head.innerText, help: head.title }));
    });
    return { lists, heads };
}"""


def ns_of(text: str) -> float:
    number, unit = re.findall(r"([0-9.,]+)\s?(ns|µs|ms|s)\b", text)[-1]
    return float(number.replace(",", "")) * UNITS[unit]


def assert_shares(seen: dict[str, Any], where: str) -> dict[str, float]:
    """Returns the wholes that the lists name, with their times."""
    wholes: dict[str, float] = {}
    for one in seen["lists"]:
        said = re.fullmatch(r"Shares are of (.+): (.+)", one["after"])
        assert said, f"{where}: nothing says of what {one['rows'][0]!r} is a share"
        whole = wholes[said[1]] = ns_of(said[2])
        shares = [float(re.findall(r"([0-9.]+)%", row)[-1]) for row in one["rows"]]
        for row, share in zip(one["rows"], shares, strict=True):
            assert 100 * ns_of(row) / whole == pytest.approx(share, abs=0.15), (where, row)
        if one["isWhole"]:
            assert sum(shares) == pytest.approx(100, abs=0.051 * len(shares)), where
        assert sum(shares) <= 100 + 0.051 * len(shares), where
    for head in seen["heads"]:
        assert head["help"], f"{where}: the column {head['title']} does not say of what its cells are shares"
    return wholes


def wholes_of(browser: Browser, page: Path) -> dict[str, dict[str, float]]:
    found = {}
    with browser.open(page) as opened:
        for section in SECTIONS:
            opened.goto(section)
            found[section] = assert_shares(opened.at.locator(f"#section-{section}").evaluate(LOOK), section)
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
