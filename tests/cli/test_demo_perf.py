"""opspan demo where perf is there: the functions that it sampled, also on the page; and a perf that fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import opspan as package
from builders import perf
from cli.test_run_perf import FAILING, REFUSED, beside_python
from emit.running import LABELLING, MAIN, forked
from opspan.app import own_samples, sampling

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_to_build")

PATIENT = f"import opspan.app.own_samples as own; own.TEXT_S = own.WAIT_S = 300.0\n{MAIN}"  # busy machines are slow


@pytest.fixture
def needs_perf() -> None:
    if (why := perf.why_not()) is not None:
        pytest.skip(why)


@pytest.mark.usefixtures("needs_perf")
def test_functions_are_shown_and_are_on_the_page(tmp_path: Path) -> None:
    done = forked(PATIENT, "demo", "-o", "demo", cwd=tmp_path, env={"COLUMNS": "120"}, imported=LABELLING)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    trace = package.load(tmp_path / "demo")
    assert trace.issues.is_empty()
    at = lines.index("Sampled with perf, as opspan functions has it:")  # not: There are no samples of functions: ...
    assert lines[at + 2].split()[:2] == ["Function", "Library"]
    assert any(line.startswith(f"{trace.samples.height:,} samples of the event ") for line in lines[at:])
    (pid,) = trace.ranges["pid"].unique()
    assert set(trace.samples["pid"]) == {pid}
    assert '"title":"Host"' in (tmp_path / "demo" / "report.html").read_text("utf-8").replace('": "', '":"')


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "`perf` is not on the PATH: install it"),
        (REFUSED, "`perf record` does not work here (Access to performance monitoring is limited.): "),
        (FAILING, "`perf record` wrote no samples (it failed): "),
    ],
)
def test_without_samples_one_sentence_says_why(script: str | None, why: str, tmp_path: Path) -> None:
    variables = beside_python(tmp_path / "bin", script)

    done = forked(MAIN, "demo", "-o", "demo", cwd=tmp_path, env=variables, imported=LABELLING)

    assert (done.returncode, done.stderr) == (0, "")
    (sentence,) = [line for line in done.stdout.splitlines() if line.startswith("There are no samples")]
    assert sentence.startswith(f"There are no samples of functions: {why}")
    names = {path.suffix or path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {".opspan", ".txt", ".html"}
    assert package.load(tmp_path / "demo").samples.is_empty()


@pytest.mark.usefixtures("needs_perf")
def test_an_error_of_the_program_leaves_no_samples(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), own_samples.OwnSamples(tmp_path):
        1 / 0  # noqa: B018

    assert list(tmp_path.iterdir()) == []


def test_a_slow_text_is_given_up(tmp_path: Path) -> None:
    script = tmp_path / "perf"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    slow = sampling.Sampler(str(script), "cpu-clock", tmp_path)
    slow.data.write_bytes(b"x")
    began = time.monotonic()

    with pytest.raises(sampling.NoSamples, match="took longer than 1 s, so the samples are in"):
        slow.finish_quickly(1.0)

    assert time.monotonic() - began < 30
    assert not (tmp_path / "perf.txt").exists()
