"""opspan waits and opspan memory: the same sums whatever they are by, and a sentence where there is nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.questions import BY

US = 1000


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A value that is fetched for 30 us, 20 of them while a kernel runs, and a wait outside of all ops."""
    events = [
        kineto.op("aten::item", kineto.MAIN, 0, 50),
        kineto.call("cudaMemcpyAsync", kineto.MAIN, 5, 5, 1),
        kineto.call("cudaStreamSynchronize", kineto.MAIN, 10, 30, 2),
        kineto.kernel("slow", 5, 25, 1),
        kineto.call("cudaDeviceSynchronize", kineto.MAIN, 60, 8, 3),
    ]
    return kineto.write(tmp_path_factory.mktemp("waits") / "run.json", kineto.document(events))


def test_who_waited_for_what(waiting: Path) -> None:
    found = {
        row["op"]: (row["item_ns"] / US, row["synchronise_ns"] / US, row["busy_ns"] / US)
        for row in rows("waits", waiting)
    }
    assert found == {"aten::item": (30, 0, 20), None: (0, 8, 0)}
    assert "aten::item  30.000us        66.7%" in opspan("waits", waiting).stdout


@pytest.mark.parametrize("by", BY["waits"])
def test_it_is_the_same_wait_whatever_it_is_by(waiting: Path, by: str) -> None:
    found = rows("waits", waiting, "--by", by)
    assert sum(row["wait_ns"] for row in found) == 38 * US
    assert sum(row["busy_ns"] for row in found) == 20 * US
    assert package.load(waiting).waits(by).to_dicts() == found


def test_a_real_file_waits_as_long_as_its_sql_says(traces_dir: Path) -> None:
    path = traces_dir / "nsys/graph_nodes.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        (expected,) = database.execute(
            "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId "
            "WHERE value GLOB 'cuda*Synchronize_v*'"
        ).fetchone()
    found = package.load(path).waits("why")
    assert found.filter(pl.col("why") == "synchronise")["wait_ns"].to_list() == [expected]


@pytest.mark.parametrize(("verb", "said"), [("waits", "No call of this trace"), ("memory", "No memory was recorded")])
def test_where_there_is_nothing_it_says_so(verb: str, said: str, tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([kineto.op("aten::mm", 1, 5, 9)]))
    done = opspan(verb, path)
    assert (done.returncode, rows(verb, path)) == (0, [])
    assert said in done.stdout


def test_a_recording_says_who_took_memory(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with package.record(memory=True, path=tmp_path / "capture") as recording:
        kept = torch.zeros(1000) + torch.ones(1000)
    del kept
    trace = recording.trace
    found = {row["op"]: row for row in rows("memory", tmp_path / "capture")}
    assert found["aten::add"]["self_allocation_bytes"] == 4000
    assert found["aten::zeros"]["allocation_bytes"] == 4000
    blocks = trace.memory_use("block")
    assert blocks["bytes"].sum() == trace.memory_use("device")["allocated_bytes"].sum() == 12000
    assert set(blocks["op"]) == {"aten::empty", "aten::add"}
    for by in BY["memory"]:
        assert trace.memory_use(by).to_dicts() == rows("memory", tmp_path / "capture", "--by", by)
