"""--step, --steps and --between: the same part of a trace, whatever it is said by."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan as package
from builders import kineto
from cli.answers import rows
from emit.running import opspan

US = 1000
VERBS = ["table", "summary", "steps", "idle", "waits", "memory"]


def run(path: Path, names: list[str | None]) -> Path:
    """A turn of 100 us for each name, with an op and a kernel; None: no range says that it is one."""
    events = []
    for number, name in enumerate(names):
        begin = 100 * number
        if name is not None:
            events.append(kineto.span("user_annotation", name, kineto.MAIN, begin, 95))
        events += [
            kineto.op("aten::mm", kineto.MAIN, begin + 5, 10),
            kineto.call("cudaLaunchKernel", kineto.MAIN, begin + 7, 4, 2 * number + 1),
            kineto.kernel("gemm", begin + 20, 40, 2 * number + 1),
            kineto.kernel("relu", begin + 62, 9 + number, 2 * number + 2),
        ]
    return kineto.write(path, kineto.document(events))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parts")
    return {
        "torch's": run(folder / "torch.json", [f"ProfilerStep#{number + 2}" for number in range(6)]),
        "ranges": run(folder / "ranges.json", ["turn"] * 6),
        "kernels": run(folder / "kernels.json", [None] * 6),
    }


@pytest.mark.parametrize("said", [["--step", "4-6"], ["--steps", "4:6"], ["--steps", "4-6"]])
def test_both_ends_are_in_it(files: dict[str, Path], said: list[str]) -> None:
    assert [row["step"] for row in rows("steps", files["torch's"], *said)] == [
        f"ProfilerStep#{number}" for number in (4, 5, 6)
    ]


def test_without_numbers_the_steps_that_are_found_are_counted(files: dict[str, Path]) -> None:
    for name, called in (("ranges", "turn"), ("kernels", "iteration")):
        every = rows("steps", files[name])
        assert [row["step"] for row in every] == [f"{called} #{number}" for number in range(6)]
        assert rows("steps", files[name], "--steps", "2:4") == every[2:5]
        assert rows("steps", files[name], "--step", "3") == every[3:4]
        assert package.load(files[name], step=(2, 4)).steps().to_dicts() == every[2:5]


@pytest.mark.parametrize("name", ["ranges", "kernels"])
def test_it_is_what_lies_in_the_time_of_these_steps(files: dict[str, Path], name: str) -> None:
    whole = package.load(files[name])
    steps = whole.steps()
    begin = min(whole.ranges["start_ns"].min(), whole.work["start_ns"].min())
    between = (steps["start_ns"][2] - begin, steps["end_ns"][3] - begin)
    one, other = package.load(files[name], step=(2, 3)), package.load(files[name], between=between)
    assert one.work.height == 4
    for table, frame in one.frames.items():
        if table != "issues":
            assert frame.equals(other.frames[table]), table
    assert one.metadata.options["window"] == "steps 2 to 3"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_them(files: dict[str, Path], verb: str) -> None:
    said = [
        opspan(verb, files["ranges"], "--format", "json", *part) for part in (["--steps", "1:2"], ["--step", "1-2"])
    ]
    assert [done.returncode for done in said] == [0, 0], said[0].stderr
    assert said[0].stdout == said[1].stdout
    assert said[0].stdout != opspan(verb, files["ranges"], "--format", "json").stdout


def test_of_several_files_each_has_its_own(files: dict[str, Path]) -> None:
    found = rows("steps", files["ranges"], files["kernels"], "--step", "5")
    assert [(row["rank"], row["step"]) for row in found] == [(0, "turn #5"), (1, "iteration #5")]


@pytest.mark.parametrize(
    ("names", "said", "message"),
    [
        (["turn"] * 6, "6", "there is no step 6: the trace has steps 0 to 5"),
        (
            [None] * 2,
            "0:3",
            "the trace has no ranges ProfilerStep#N, and nothing in it repeats",
        ),
        (["turn"] * 6, "5:2", "in the wrong order"),
    ],
)
def test_steps_that_are_not_there_are_one_line(tmp_path: Path, names: list[str], said: str, message: str) -> None:
    done = opspan("idle", run(tmp_path / "run.json", names), "--steps", said)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
