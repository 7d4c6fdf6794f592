"""A baseline stands for its trace: the same answer, to the last digit; and nothing in such a file can do harm."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from analysis.test_compare import runs
from builders import kineto
from builders.training import run
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import Plan
from emit.running import opspan
from opspan import load
from opspan.analysis import Analysis
from opspan.analysis.compare import BY, compare, compared
from opspan.analysis.figures import figures
from opspan.tables import Tables
from opspan.views import baseline
from properties import property_of

SLOWER = Plan(noise=0.003, steps=5, seed=1, slower={"aten::mm": 1.2})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for name, plan in {"good": Plan(noise=0.003, steps=5), "slow": SLOWER, "none": Plan(no_steps=True)}.items():
        (folder / name).mkdir()
        kineto_files(folder / name, run(plan))
    done = opspan("diff", folder / "good" / "rank00.json", "--save-baseline", folder / "base.json")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"Wrote {folder / 'base.json'}")
    return folder


def same_answer(before: Path, after: Path, base: Path) -> None:
    load(before).save_baseline(base)
    one, other = load(before), load(after)
    for by in BY:
        assert other.compare_to_baseline(base, by).equals(one.compare(other, by)), by


@pytest.mark.parametrize("pair", [("good", "slow"), ("slow", "good"), ("good", "none"), ("none", "slow")])
def test_the_answer_is_that_of_the_trace(made: Path, pair: tuple[str, str], tmp_path: Path) -> None:
    before, after = (made / name / "rank00.json" for name in pair)
    same_answer(before, after, tmp_path / "base.json")


@pytest.mark.parametrize("by", BY)
def test_the_command_says_the_same(made: Path, by: str) -> None:
    before, after = (made / name / "rank00.json" for name in ("good", "slow"))
    asked = ("--by", by, "--fail-over", "5%", "--format", "json")
    from_file = opspan("diff", after, "--baseline", made / "base.json", *asked)
    of_both = opspan("diff", before, after, *asked)
    assert from_file.returncode == of_both.returncode == 1
    for key in ("rows", "notes"):
        assert json.loads(from_file.stdout)[key] == json.loads(of_both.stdout)[key]


def test_what_was_made_slower_is_the_only_change(made: Path) -> None:
    rows = load(made / "slow" / "rank00.json").compare_to_baseline(made / "base.json", "place")
    assert set(rows.filter("is_real")["name"]) == {"aten::mm"}


# With an item the host waits for the device in each step, without one it only runs ahead.
@pytest.mark.parametrize("item", [True, False])
@pytest.mark.parametrize(("times", "code"), [(1.0, 0), (1.02, 0), (1.2, 1), (2.0, 1)])
def test_the_exit_code_says_whether_steps_take_longer(times: float, code: int, item: bool, tmp_path: Path) -> None:
    for name, slower in (("good", {}), ("new", {"aten::mm": times})):
        (tmp_path / name).mkdir()
        plan = Plan(steps=5, noise=0.003, item_per_step=item, seed=len(slower), slower=slower)
        kineto_files(tmp_path / name, run(plan))
    base = tmp_path / "base.json"
    assert opspan("diff", tmp_path / "good" / "rank00.json", "--save-baseline", base).returncode == 0
    done = opspan("diff", tmp_path / "new" / "rank00.json", "--baseline", base, "--fail-over", "5%")
    assert done.returncode == code
    assert f"{'Failed' if code else 'Passed'}: B may take 5% longer" in done.stdout


@property_of(runs(), runs(), st.sampled_from(list(BY)), few=25, many=100)
def test_what_is_read_is_what_was_written(one: Tables, other: Tables, by: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.json"
        baseline.save(Analysis(one), path)
        kept = baseline.load(path, by)
    now = Analysis(other).complete
    assert compared(kept, figures(now, by)).equals(compare(Analysis(one).complete, now, by))


@pytest.mark.parametrize(
    "names", [("kineto/rank0_sampled", "kineto/rank1_sampled"), ("kineto/compare_base", "kineto/compare_test")]
)
def test_a_real_pair_has_the_same_answer(names: tuple[str, str], traces_dir: Path, tmp_path: Path) -> None:
    before, after = (traces_dir / f"{name}.json.gz" for name in names)
    same_answer(before, after, tmp_path / "base.json")


def test_an_earlier_baseline_is_replaced_and_nothing_else(made: Path, tmp_path: Path) -> None:
    trace, base, other = made / "slow" / "rank00.json", tmp_path / "base.json", tmp_path / "mine.json"
    base.write_bytes((made / "base.json").read_bytes())
    assert opspan("diff", trace, "--save-baseline", base).returncode == 0
    assert base.read_bytes() != (made / "base.json").read_bytes()
    other.write_text('{"mine": 1}')
    before = trace.read_bytes()
    for path in (other, trace, tmp_path):
        done = opspan("diff", trace, "--save-baseline", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "exists and is no baseline" in done.stderr
    assert (other.read_text(), trace.read_bytes()) == ('{"mine": 1}', before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.json", "mine.json"]


def test_the_same_run_gives_the_same_file(made: Path, tmp_path: Path) -> None:
    load(made / "good" / "rank00.json").save_baseline(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (made / "base.json").read_bytes()


def test_what_has_too_many_rows_is_left_out(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load(made / "good" / "rank00.json")
    monkeypatch.setattr(baseline, "MOST_ROWS", 50)
    (said,) = trace.save_baseline(tmp_path / "base.json")
    assert said.startswith("It has nothing by place: ")
    assert trace.compare_to_baseline(tmp_path / "base.json")["change_ns"].sum() == 0
    done = opspan("diff", made / "good" / "rank00.json", "--baseline", tmp_path / "base.json", "--by", "place")
    assert (done.returncode, "has no figures by place" in done.stderr) == (2, True)


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def text(whole: str) -> str:
        document = json.loads(whole)
        change(document)
        return json.dumps(document)

    return text


def cell(column: int, value: Any) -> Callable[[str], str]:
    return changed(lambda document: document["op"]["rows"][0].__setitem__(column, value))


DAMAGED = {
    "cut off": (lambda text: text[: len(text) // 2], "damaged"),
    "empty": (lambda _: "", "is no baseline"),
    "not JSON": (lambda _: "hello", "is no baseline"),
    "a list": (lambda _: "[1]", "is no baseline"),
    "a trace": (lambda _: '{"traceEvents": []}', "is no baseline"),
    "deep": (lambda _: "[" * 100_000, "is no baseline"),
    "newer": (changed(lambda document: document.update(opspan_baseline=4)), "version 4, and this opspan knows 3"),
    "older": (changed(lambda document: document.update(opspan_baseline=2)), "version 2, which does not say what"),
    "version of text": (changed(lambda document: document.update(opspan_baseline="1")), 'its version is "1"'),
    "true as version": (changed(lambda document: document.update(opspan_baseline=True)), "its version is true"),
    "without steps": (changed(lambda document: document.pop("steps")), "damaged"),
    "steps of text": (changed(lambda document: document["steps"].update(median="1")), "damaged"),
    "unknown steps": (changed(lambda document: document["steps"].update(more=1)), "damaged"),
    "without the kind": (changed(lambda document: document.pop("op")), "has no figures by op"),
    "of another kind": (changed(lambda document: document.update(op=document["shape"])), "the columns by op"),
    "kind is a list": (changed(lambda document: document.update(op=[])), "op is no object"),
    "rows are text": (changed(lambda document: document["op"].update(rows="x")), "rows is no list"),
    "a row is text": (changed(lambda document: document["op"]["rows"].append("x")), "has not 7 values"),
    "a row is short": (changed(lambda document: document["op"]["rows"].append([1])), "has not 7 values"),
    "a row twice": (changed(lambda d: d["op"]["rows"].append(d["op"]["rows"][0])), "two rows by op are of the same"),
    "time of nothing": (changed(lambda document: document["op"].update(time="gpu")), "its times are of nothing"),
    "time is a list": (changed(lambda document: document["op"].update(time=[])), "damaged"),
    "name is a number": (cell(0, 1), "name by op has a value of the wrong type"),
    "half a character": (cell(0, "\ud800"), "name by op has a value of the wrong type"),
    "count is text": (cell(1, "1"), "count by op has a value of the wrong type"),
    "count is true": (cell(1, True), "count by op has a value of the wrong type"),
    "count is missing": (cell(1, None), "has no count"),
    "time is below nothing": (cell(2, -1), "ns by op has a value of the wrong type"),
    "time is too large": (cell(2, 2**63), "ns by op has a value of the wrong type"),
    "usual is no number": (cell(4, float("nan")), "usual by op has a value of the wrong type"),
    "usual has no end": (cell(4, float("inf")), "usual by op has a value of the wrong type"),
    "usual is an object": (cell(4, {}), "usual by op has a value of the wrong type"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_file_that_is_no_good_is_one_line(what: str, made: Path, tmp_path: Path) -> None:
    change, said = DAMAGED[what]
    path = tmp_path / "base.json"
    path.write_text(change((made / "base.json").read_text()))
    done = opspan("diff", made / "slow" / "rank00.json", "--baseline", path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_a_file_that_is_huge_is_not_read(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    with path.open("wb") as file:
        file.truncate(baseline.MOST_BYTES + 1)
    for file in (path, tmp_path / "missing.json", tmp_path):
        done = opspan("diff", made / "slow" / "rank00.json", "--baseline", file)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run.json", "run.json", "--baseline", "b"), "takes one file with --baseline, and got 2 files"),
        (("run.json", "run.json", "--save-baseline", "b"), "takes one file with --save-baseline, and got 2 files"),
        (("run.json", "--save-baseline", "b", "--baseline", "b"), "both --baseline and --save-baseline"),
        (("run.json", "--baseline", "b", "--with-step", "3"), "with --baseline only one trace is read"),
        (("run.json", "--step", "0", "--with-step", "77"), "there is no step 77: the trace has steps 0 to 7"),
        (("run.json", "--with-step", "no such"), "no range is called 'no such'"),
        (("run.json", "--process", "5000", "--with-process", "7"), "nothing of process 7; expected one of 5000"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    kineto_files(tmp_path, run(Plan()))[0].rename(tmp_path / "run.json")
    done = opspan("diff", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line


def rows_of(*arguments: str | Path) -> list[dict[str, Any]]:
    done = opspan("diff", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


@pytest.mark.parametrize("write", [kineto_files, nsys_files])
def test_two_steps_of_one_run_have_what_each_launched(write: Callable[..., list[Path]], tmp_path: Path) -> None:
    made = run(Plan(steps=5))
    (path,) = write(tmp_path, made)
    kernels = [(row, call) for row in made.work for call in made.calls if row.correlation == call.correlation]
    steps = {row.name: row for row in made.ranges if row.name.startswith("ProfilerStep#")}

    def launched_in(number: int) -> int:
        step = steps[f"ProfilerStep#{number}"]
        return sum(row.end - row.start for row, call in kernels if step.start <= call.start < step.end)

    for files in ((path,), (path, path)):
        found = rows_of(*files, "--step", "1", "--with-step", "3", "--by", "kernel")
        for side, number in (("before", 1), ("after", 3)):
            assert sum(row[f"{side}_ns"] for row in found) == launched_in(number)
            assert sum(row[f"step_{side}_ns"] for row in found) == launched_in(number)
        assert {row["is_real"] for row in found} == {None}
    (mm,) = (row for row in rows_of(path, "--step", "0-1", "--with-step", "2-4") if row["name"] == "aten::mm")
    assert (mm["count_before"], mm["count_after"]) == (32, 48)
    assert mm["is_real"] is None


def test_two_processes_of_one_file(tmp_path: Path) -> None:
    events = []
    for pid, length in ((10, 100), (20, 130)):
        for step in range(3):
            begin = 1000 * step
            events += [
                kineto.span("user_annotation", f"ProfilerStep#{step}", kineto.MAIN, begin, 900, pid),
                kineto.op("aten::mm", kineto.MAIN, begin + 10, length) | {"pid": pid},
            ]
    path = kineto.write(tmp_path / "run.json", kineto.document(events))
    (mm,) = (row for row in rows_of(path, "--process", "10", "--with-process", "20") if row["name"] == "aten::mm")
    assert (mm["count_before"], mm["before_ns"], mm["after_ns"], mm["is_real"]) == (3, 300_000, 390_000, True)
