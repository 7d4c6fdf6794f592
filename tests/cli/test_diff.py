"""opspan diff: what is slower is named first, noise is not, and the exit code says so."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import opspan as package
from builders import kineto
from emit.running import opspan
from opspan.analysis.compare import BY

US = 1000
NOISE = (100, 102, 98, 101, 99)


def training(path: Path, lengths: Sequence[float], *, first: int = 0, more: str = "aten::relu") -> Path:
    """A step for each: an op of that many us, one that always takes 50, and another 149."""
    events, now = [], 0.0
    for number, length in enumerate(lengths):
        events += [
            kineto.span("user_annotation", f"ProfilerStep#{first + number}", kineto.MAIN, now, length + 200),
            kineto.op("aten::mm", kineto.MAIN, now + 1, length),
            kineto.op("aten::add", kineto.MAIN, now + length + 1, 50),
            kineto.op(more, kineto.MAIN, now + length + 51, 149),
        ]
        now += length + 200
    return kineto.write(path, kineto.document(events))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diff")
    training(folder / "before.json", NOISE)
    training(folder / "slower.json", [1.2 * length for length in NOISE], first=7)
    training(folder / "noisy.json", [length + 1 for length in reversed(NOISE)])
    training(folder / "other.json", NOISE, more="aten::gelu")
    return folder


def document(*arguments: str | Path) -> dict[str, Any]:
    done = opspan("diff", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_op_that_is_slower_is_named_first_and_is_real(folder: Path) -> None:
    found = document(folder / "before.json", folder / "slower.json")
    first, *others = found["rows"]
    assert (first["name"], first["change_ns"], first["is_real"]) == ("aten::mm", 20 * US, True)
    assert (first["step_before_ns"], first["change"]) == (100 * US, pytest.approx(0.2))
    assert not any(row["change_ns"] or row["is_real"] for row in others)
    assert found["notes"][0] == (
        "Time of a step: 300.000us before, 320.000us after, +6.7% of before; more than the noise of the steps"
    )
    assert "Grew most: aten::mm by 20.000us" in found["notes"]


def test_in_python_it_is_the_same_frame(folder: Path) -> None:
    before, after = (package.load(folder / name) for name in ("before.json", "slower.json"))
    for by in BY:
        rows = document(folder / "before.json", folder / "slower.json", "--by", by)["rows"]
        assert before.compare(after, by).to_dicts() == rows


@pytest.mark.parametrize(
    ("after", "share", "code"),
    [
        ("slower.json", "5%", 1),
        ("slower.json", "6.5%", 1),
        ("slower.json", "7%", 0),
        ("slower.json", "50%", 0),
        ("noisy.json", "0%", 0),  # longer by a third of a percent: noise
        ("before.json", "0%", 0),
    ],
)
def test_the_exit_code_says_whether_it_is_slower(folder: Path, after: str, share: str, code: int) -> None:
    for form in ("text", "json", "csv"):
        done = opspan("diff", folder / "before.json", folder / after, "--fail-over", share, "--format", form)
        assert done.returncode == code, done.stderr
        said = done.stderr if form == "csv" else done.stdout
        assert f"{'Failed' if code else 'Passed'}: B may take {share} longer" in said


def test_noise_alone_is_not_real(folder: Path) -> None:
    found = document(folder / "before.json", folder / "noisy.json")
    changed = {row["name"]: row["is_real"] for row in found["rows"] if row["change_ns"]}
    assert changed == {"aten::mm": False}
    assert "no more than the noise of the steps" in found["notes"][0]
    assert len(found["notes"]) == 1


def test_without_steps_the_whole_is_compared(tmp_path: Path) -> None:
    before, after = (
        kineto.write(tmp_path / f"{length}.json", kineto.document([kineto.op("aten::mm", kineto.MAIN, 0, length)]))
        for length in (100, 120)
    )
    done = opspan("diff", before, after, "--fail-over", "5%")
    assert done.returncode == 1
    assert "the whole self time of CPUs: 100.000us before, 120.000us after, +20.0% of before" in done.stdout
    assert "it takes 3 steps in each run" in done.stdout
    assert opspan("diff", after, before, "--fail-over", "0%").returncode == 0


def test_what_is_new_and_what_is_gone_is_said(folder: Path) -> None:
    done = opspan("diff", folder / "before.json", folder / "other.json")
    assert "Only in B: aten::gelu\nOnly in A: aten::relu\n" in done.stdout
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith(" ")}
    assert lines["aten::gelu"] == ["aten::gelu", "0.000us", "149.000us", "+149.000us", "0.0%", "49.7%", "*", "new"]
    assert lines["aten::relu"] == [
        "aten::relu",
        "149.000us",
        "0.000us",
        "-149.000us",
        "-100.0%",
        "49.7%",
        "0.0%",
        "*",
        "gone",
    ]


def test_as_csv_the_rows_are_the_same_and_some_are_enough(folder: Path) -> None:
    pair = (folder / "before.json", folder / "slower.json")
    rows = list(csv.DictReader(io.StringIO(opspan("diff", *pair, "--format", "csv").stdout)))
    assert [(row["name"], int(row["change_ns"])) for row in rows] == [
        (row["name"], row["change_ns"]) for row in document(*pair)["rows"]
    ]
    assert len(document(*pair, "--limit", "1")["rows"]) == 1


def test_steps_may_have_a_name_of_the_users(folder: Path, tmp_path: Path) -> None:
    found = document(folder / "before.json", folder / "slower.json", "--step", "aten::mm")
    assert found["notes"][0].startswith("Time of a step: 100.000us before, 120.000us after, +20.0% of before")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["before.json"], "opspan diff compares two files, A with B, and got 1 file"),
        (["before.json"] * 3, "opspan diff compares two files, A with B, and got 3 files"),
        (["before.json", "missing.json"], "missing.json"),
        (["before.json", "broken.json"], "broken.json"),
        (["before.json", "slower.json", "--fail-over", "5"], "--fail-over is a share in percent, as 5%, and not '5'"),
        (["before.json", "slower.json", "--fail-over", "nan%"], "not 'nan%'"),
    ],
)
def test_what_cannot_be_compared_is_one_line(folder: Path, files: list[str], said: str) -> None:
    (folder / "broken.json").write_text("{")
    done = opspan("diff", *files, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line


@pytest.mark.parametrize("by", BY)
def test_a_real_pair_has_the_times_of_each(by: str, traces_dir: Path) -> None:
    pair = [traces_dir / f"kineto/{rank}_sampled.json.gz" for rank in ("rank0", "rank1")]
    rows = document(*pair, "--by", by)["rows"]
    changes = [abs(row["change_ns"]) for row in rows]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 0
    for path, side in zip(pair, ("before", "after"), strict=True):
        table = opspan(
            "table", path, "--by", "name" if by in ("op", "place") else by, "--limit", "-1", "--format", "json"
        )
        time = "device_ns" if by == "kernel" else "self_device_ns"
        assert sum(row[f"{side}_ns"] for row in rows) == sum(row[time] for row in json.loads(table.stdout)["rows"])


def test_a_pair_of_which_one_has_more_ops(traces_dir: Path) -> None:
    base, test = (traces_dir / f"kineto/compare_{name}.json.gz" for name in ("base", "test"))
    state = {row["name"]: row["state"] for row in document(base, test)["rows"]}
    assert state["AddmmBackward0"] == "new"
    back = {row["name"]: row["state"] for row in document(test, base)["rows"]}
    assert back["AddmmBackward0"] == "gone"
