"""opspan path: the same path whatever it is by, what steps would take, and an error for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan
from opspan.questions import BY

US = 1000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel of 20 us that a call waits for, in ops of 48 us."""
    events = [
        kineto.op("aten::mm", kineto.MAIN, 0, 8),
        kineto.call("cudaLaunchKernel", kineto.MAIN, 1, 4, 1),
        kineto.kernel("one", 10, 20, 1),
        kineto.op("aten::item", kineto.MAIN, 9, 39),
        kineto.call("cudaStreamSynchronize", kineto.MAIN, 12, 20, 2),
    ]
    return kineto.write(tmp_path_factory.mktemp("path") / "run.json", kineto.document(events))


def test_what_the_time_is_made_of(run: Path) -> None:
    found = {row["kind"]: row["time_ns"] / US for row in rows("path", run, "--by", "kind")}
    assert found == {"computing": 20, "host": 17, "launch": 5, "call": 4, "wait": 2}
    by_op = {row["op"]: row["time_ns"] / US for row in rows("path", run)}
    assert by_op == {"aten::mm": 5 + 5 + 20, "aten::item": 18}


@pytest.mark.parametrize("by", BY["path"])
def test_it_is_the_same_time_whatever_it_is_by(run: Path, by: str) -> None:
    found = rows("path", run, "--by", by)
    assert sum(row["time_ns"] for row in found) == 48 * US
    assert package.load(run).path(by).to_dicts() == found


@pytest.mark.parametrize(
    ("said", "after"),
    [(("aten::mm=1",), 48), (("computing=0.5",), 38), (("aten::mm=0",), 23), (("computing=0", "launch=0"), 28)],
)
def test_what_it_would_take(run: Path, said: tuple[str, ...], after: int) -> None:
    (row,) = rows("path", run, *(word for one in said for word in ("--what-if", one)))
    assert (row["time_ns"] / US, row["after_ns"] / US, row["change_ns"] / US) == (48, after, after - 48)


def test_as_text_it_says_what_it_would_take(run: Path) -> None:
    done = opspan("path", run, "--what-if", "computing=0.5")
    assert "It would take 38.000us instead of 48.000us: -20.8%" in done.stdout


@pytest.mark.parametrize(
    "said", ["aten::mm", "aten::mm=", "=0.5", "aten::mm=half", "aten::mm=-1", "aten::mm=nan", "no=1"]
)
def test_what_cannot_be_is_an_error(run: Path, said: str) -> None:
    done = opspan("path", run, "--what-if", said)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


def test_of_one_name_there_is_one_factor(run: Path) -> None:
    assert opspan("path", run, "--what-if", "aten::mm=1", "--what-if", "aten::mm=2").returncode == 2


def test_where_there_is_nothing_it_says_so(tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "run.json", kineto.document([]))
    assert "There is nothing in this trace" in opspan("path", path).stdout
    assert "whole run" not in opspan("path", path, "--what-if", "computing=0.5").stdout
