"""tools/bench: what is called worse is worse, what is noise is not called so, and what is kept is of its commit."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.tree import REPO
from tool_folders import importable

BENCH = REPO / "tools" / "bench"


bench = importable("bench")


def runs(values: list[float], **goal: float) -> list[list[object]]:
    from figures import Figure

    return [[Figure("bench", "title", "words", value, "x", **goal)] for value in values]


def share_called_worse(times: float, noise: float, pairs: int = 3, more_is_better: bool = False) -> float:
    """Returns the share of 2,000 comparisons in which a figure is called worse that is multiplied by `times`."""
    from changes import changes

    numbers = random.Random(times * 1000 + noise)
    goal = {"least": 1.0} if more_is_better else {"most": 1.0}

    def is_worse() -> bool:
        old: list[float] = []
        new: list[float] = []
        for _ in range(2):
            old += [numbers.gauss(1, noise) for _ in range(pairs)]
            new += [numbers.gauss(times, noise * times) for _ in range(pairs)]
            (found,) = changes(runs(old, **goal), runs(new, **goal))
            if not found.is_worse:
                return False
        return True

    return sum(is_worse() for _ in range(2000)) / 2000


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.2])
def test_noise_is_not_called_worse(noise: float) -> None:
    assert share_called_worse(1.0, noise) < 0.001


def test_what_is_worse_by_far_more_than_the_noise_is_called_so() -> None:
    assert share_called_worse(1.1, 0.01) > 0.99
    assert share_called_worse(0.9, 0.01) == 0
    assert share_called_worse(0.9, 0.01, more_is_better=True) > 0.99
    assert share_called_worse(1.1, 0.01, more_is_better=True) == 0


def test_figures_below_nothing_are_compared_too() -> None:
    from changes import changes

    (found,) = changes(runs([-2.0, -2.1]), runs([1.0, 1.1]))
    assert found.is_worse
    (found,) = changes(runs([0.0, 0.0]), runs([0.0, 0.0]))
    assert not found.is_worse
    assert not found.is_better
    (found,) = changes(runs([1.0, 1.1]), runs([-2.0, -2.1]))
    assert found.is_better


def test_figures_that_only_one_commit_has_are_not_compared() -> None:
    from changes import changes

    assert changes(runs([1.0, 1.0]), [[], []]) == []


def test_a_bench_says_a_figure_to_who_reads_and_to_who_keeps(tmp_path: Path) -> None:
    from figures import read

    code = """from figures import figure, title
title("rows", "7 s")
figure("time", 0.5, beside="1 s", most=0.4)
figure("all", 3, "s")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(BENCH), "OPSPAN_FIGURES": str(tmp_path / "figures")},
        capture_output=True,
        text=True,
        check=True,
    )

    one, two = read(tmp_path / "figures")
    assert (one.of, one.what, one.value, one.goal, one.met) == ("rows", "time", 0.5, "<= 0.4 x", False)
    assert (two.text, two.goal, two.met) == ("3.00 s", "", None)
    assert done.stdout.split() == "rows: 7 s time 0.50 x 1 s <= 0.4 x MISSED all 3.00 s".split()


def test_the_table_has_the_headlines_among_what_was_kept() -> None:
    from headlines import HEADLINES

    kept = json.loads((BENCH / "kept.json").read_text(encoding="utf-8"))
    page = (REPO / "docs" / "figures.md").read_text(encoding="utf-8")
    rows = {(row["bench"], row["of"], row["what"]): row for row in kept}

    for key in HEADLINES:
        row = rows[key]
        assert f"| {row['bench']}: {row['of']} | {row['what']} | " in page
        assert f" | {row['day']}, {row['commit']} |" in page


def test_the_history_of_measurements_is_data() -> None:
    history = json.loads((BENCH / "history.json").read_text(encoding="utf-8"))

    assert {"Labelling", "Reading", "On an H100"} <= {section["title"] for section in history}
    for section in history:
        for part in section["parts"]:
            assert "note" in part or {len(row) for row in part["rows"]} == {len(part["columns"])}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "no part is called nothing"),
        (["--keep", "--against", "HEAD"], "leave out --against"),
        (["--against", "HEAD", "--pairs", "1"], "two runs of each"),
        (["--against", "no-such-commit"], "git rev-parse"),
    ],
)
def test_what_cannot_be_measured_is_said(words: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, BENCH, *words], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.slow  # builds a program
@pytest.mark.parametrize("keep", [0, 1_000_000])
def test_the_bench_of_rings_can_drive_the_sinks_that_there_are(tmp_path: Path, keep: int) -> None:
    import rolling

    found = rolling.run(rolling.build(tmp_path), tmp_path, ranges=400_000, shapes=1000, keep=keep)
    assert found.ns > 0
    assert found.lost == 0


def test_a_part_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    """Parts of our own, in a copy that keeps what they found."""
    for folder in ("tools/bench", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("__main__.py", "changes.py", "figures.py"):
        shutil.copy(BENCH / file, tmp_path / "tools" / "bench")
    (tmp_path / "tools" / "bench" / "headlines.py").write_text("HEADLINES = [('page', 'rows', 'time')]\n")
    (tmp_path / "docs" / "figures.md").write_text(
        "before\n<!-- python tools/bench --keep writes from here -->\n<!-- to here -->\nafter\n"
    )
    good = "from figures import figure, title\ntitle('rows')\nfigure('time', 0.5, most=0.4)\n"
    for name, code in {"walk.py": "raise SystemExit(3)", "page.py": good}.items():
        (tmp_path / "tools" / "bench" / name).write_text(code)
    for command in ("init -q", "-c user.name=n -c user.email=e@example.com commit -q --allow-empty -m one"):
        subprocess.run(["git", "-C", tmp_path, *command.split()], check=True)

    done = subprocess.run(
        [sys.executable, tmp_path / "tools" / "bench", "--keep", "walk", "page"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "walk: walk.py failed with exit code 3\n"
    assert "1 figures, 1 of which miss their goal" in done.stdout
    page = (tmp_path / "docs" / "figures.md").read_text()
    assert page.startswith("before\n")
    assert "| page: rows | time | 0.50 x | <= 0.4 x | MISSED |" in page
    assert "Of 1 figures with a goal 1 miss it." in page
    assert page.endswith("after\n")
