"""The tab, in a real TensorBoard and a real browser."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.training import run
from builders.training_files import kineto_files
from builders.training_plan import Plan
from opspan.tensorboard.runs import TOGETHER
from page.browser import Browser
from page.shares import assert_shares, look
from tb_tab.server import serving
from views.sources import nsys

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.slow

OF_TENSORBOARD = ("Multiple instances of Three.js",)  # a message of TensorBoard itself


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    (folder / "train").mkdir()
    for number, path in enumerate(kineto_files(folder / "train", run(Plan(ranks=2)))):
        path.rename(
            folder / "train" / f"worker{number}.100{number}.pt.trace.json{'.gz' if path.suffix == '.gz' else ''}"
        )
    (folder / "other").mkdir()
    nsys(folder / "other" / "report.sqlite")
    (folder / "broken").mkdir()
    (folder / "broken" / "worker0.1.pt.trace.json").write_text('{"traceEvents": [')
    return folder


@pytest.fixture(scope="module")
def server(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(log, tmp_path_factory.mktemp("server") / "said") as address:
        yield address


def answer(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as found:
        return json.loads(found.read())


def test_it_is_active_where_there_are_traces(server: str) -> None:
    assert answer(f"{server}/data/plugin/opspan/runs")["runs"]
    assert answer(f"{server}/data/plugins_listing")["opspan"]["enabled"]


def test_runs_workers_and_comparison_show_the_page(browser: Browser, server: str) -> None:
    with browser.at(f"{server}/#opspan", complains=OF_TENSORBOARD) as opened:
        tab = opened.at.frame_locator("iframe")
        tab.get_by_role("combobox", name="Run").select_option("other")
        tab.get_by_role("heading", name="opspan: report.sqlite").wait_for()
        tab.get_by_role("link", name="Operators").click()
        tab.locator("#section-operators").get_by_text("aten::addmm").first.wait_for()

        tab.get_by_role("combobox", name="Run").select_option("train")
        tab.get_by_role("heading", name="worker0").wait_for()
        assert tab.get_by_role("combobox", name="Worker").input_value() == "all together"
        tab.get_by_role("combobox", name="Worker").select_option("worker1")
        tab.get_by_role("heading", name="opspan: worker1").wait_for()

        tab.get_by_role("combobox", name="Compare to").select_option("other")
        tab.get_by_role("heading", name="opspan: worker1").wait_for()
        opened.shot("tensorboard")


def test_shares_in_the_tab_say_of_what(browser: Browser, server: str) -> None:
    # For each section the place of its shares, besides columns of tables.
    kinds = {"overview": "lists", "operators": "lists", "kernels": "lists", "distributed": "lines", "compare": "lines"}
    # The damaged trace is the first to be shown.
    with browser.at(f"{server}/#opspan", complains=(*OF_TENSORBOARD, "422")) as opened:
        tab = opened.at.frame_locator("iframe")
        tab.get_by_role("combobox", name="Run").select_option("train")
        tab.get_by_role("combobox", name="Compare to").select_option("other")
        tab.locator("#section-compare .sides").wait_for(state="attached")
        for section, kind in kinds.items():
            tab.locator(f'nav a[href="#{section}"]').click()
            tab.locator(f"#section-{section} .content > *:not(.unpacking)").first.wait_for()
            seen = look(tab, section)
            assert_shares(seen, section)
            assert seen[kind], section
            assert any(one["shares"] or one["bars"] for one in seen["tables"]), section
            if kind == "lines":
                assert all(re.search("% (of|was waiting)", line) for line in seen["lines"])


def test_a_damaged_trace_says_so_and_the_others_are_still_there(browser: Browser, server: str) -> None:
    with browser.at(f"{server}/#opspan", complains=(*OF_TENSORBOARD, "422")) as opened:
        tab = opened.at.frame_locator("iframe")
        tab.get_by_role("combobox", name="Run").select_option("broken")
        tab.get_by_role("status").filter(has_text="worker0.1.pt.trace.json").wait_for()
        tab.get_by_role("combobox", name="Run").select_option("other")
        tab.get_by_role("heading", name="opspan: report.sqlite").wait_for()


def test_nothing_but_what_was_found_is_served(server: str) -> None:
    for asked in ("run=../other", "run=other&worker=/etc/passwd", "run=other&against=nowhere"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            answer(f"{server}/data/plugin/opspan/head?{asked}")


def test_it_starts_where_there_is_nothing(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with serving(tmp_path / "empty", tmp_path / "said") as address:
        assert not answer(f"{address}/data/plugins_listing")["opspan"]["enabled"]
        with browser.at(f"{address}/#opspan", complains=OF_TENSORBOARD) as opened:
            opened.at.frame_locator("iframe").get_by_text("There are no traces in").wait_for()


def test_the_old_plugin_shows_the_same_folder_beside_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from peers.environments import python_of

    packages = next((python_of("tb_plugin").parent.parent / "lib").glob("python3*/site-packages"))
    (tmp_path / "packages").mkdir()
    for path in packages.glob("torch_tb_profiler*"):
        (tmp_path / "packages" / path.name).symlink_to(path)
    for worker in ("worker0", "worker1"):
        handler = torch.profiler.tensorboard_trace_handler(str(tmp_path / "log" / "train"), worker)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler):
            torch.ones(8, 8) @ torch.ones(8, 8)

    with serving(tmp_path / "log", tmp_path / "said", tmp_path / "packages") as address:
        if "pytorch_profiler" not in answer(f"{address}/data/plugins_listing"):
            pytest.skip("torch_tb_profiler does not start beside this TensorBoard")
        ((ours,),) = (run["spans"] for run in answer(f"{address}/data/plugin/opspan/runs")["runs"])
        theirs = f"{address}/data/plugin/pytorch_profiler"
        while "train" not in answer(f"{theirs}/runs")["runs"]:  # pytest ends this if it never comes
            time.sleep(0.1)
        workers = answer(f"{theirs}/workers?run=train&view=Operator")
    assert [worker["name"] for worker in ours["workers"]] == [TOGETHER, *workers] == [TOGETHER, "worker0", "worker1"]
