"""Categories of memory agree with torch.profiler, which follows every tensor, wherever both know one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from emit.running import forked_file
from once import made_once

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("categories.py")
TRAINING = ("momentum", "accumulated", "images", "stepped_in_hooks")
TOLD = ("temporary", "activation", "gradient", "autograd_detail", "optimizer_state")

Found = dict[str, list[tuple[int, str, str]]]


@pytest.fixture(scope="session")
def found(shared_folder: Path) -> Found:
    def run(out: Path) -> None:
        assert forked_file(PROGRAM, out).returncode == 0

    rows: Found = json.loads(made_once(shared_folder / "categories.json", run).read_text())
    assert len(rows) == 14 + len(TRAINING)
    return rows


def by_category(found: Found, names: list[str]) -> Counter[tuple[str, str]]:
    """(torch's, opspan's) -> bytes."""
    sums: Counter[tuple[str, str]] = Counter()
    for name in names:
        for size, theirs, ours in found[name]:
            sums[theirs, ours] += size
    return sums


@pytest.mark.parametrize("kind", ["programs", "training"])
@pytest.mark.parametrize("category", TOLD)
def test_what_is_told_is_what_torch_says_where_torch_knows(found: Found, kind: str, category: str) -> None:
    names = [name for name in found if (name in TRAINING) == (kind == "training")]
    sums = by_category(found, names)
    known = sum(size for (theirs, ours), size in sums.items() if ours == category and theirs != "unknown")

    assert known > 0
    assert sums[category, category] >= 0.95 * known


def test_what_cannot_be_known_is_never_told(found: Found) -> None:
    assert {ours for rows in found.values() for _, _, ours in rows} == {*TOLD, "unknown"}


def test_a_gradient_that_a_hook_lets_go_of_is_not_called_a_detail(found: Found) -> None:
    told = {ours for _, theirs, ours in found["stepped_in_hooks"] if theirs == "gradient"}
    assert told == {"unknown"}


def test_most_of_what_torch_knows_of_training_is_told(found: Found) -> None:
    sums = by_category(found, [name for name in TRAINING if name != "stepped_in_hooks"])
    for category in ("activation", "gradient", "autograd_detail"):
        known = sum(size for (theirs, _), size in sums.items() if theirs == category)
        assert sums[category, category] > 0.5 * known
