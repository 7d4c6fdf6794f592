"""opspan functions: shares of samples by what they were in, on real files and on many files together."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opspan as package
from cli.answers import rows
from emit.running import opspan
from opspan.questions import BY
from opspan.trace import Trace


@pytest.fixture(scope="module")
def sampled(traces_dir: Path) -> Path:
    return traces_dir / "nsys/torch_lm_2025.sqlite"


@pytest.mark.parametrize("by", BY["functions"])
def test_all_samples_are_counted_whatever_it_is_by(sampled: Path, by: str) -> None:
    trace = package.load(sampled)
    assert sum(row["samples"] for row in rows("functions", sampled, "--by", by)) == trace.samples.height
    assert trace.sampled_functions(by)["weight"].sum() == trace.samples["weight"].sum()


def test_the_options_choose_samples(sampled: Path) -> None:
    done = opspan("functions", sampled, "--in", "range", "Forward", "--idle", "--by", "library")
    assert "samples in range Forward and taken while a device was idle" in done.stdout
    in_range = sum(row["samples"] for row in rows("functions", sampled, "--in", "range", "Forward"))
    by_op = {row["op"]: row["samples"] for row in rows("functions", sampled, "--by", "op")}
    assert in_range >= by_op["Forward"] > 0
    assert opspan("functions", sampled, "--in", "kernel", "x").returncode == 2


def test_events_are_counted_apart(traces_dir: Path) -> None:
    path = traces_dir / "vtune/r010hs_tasks/r010hs"
    samples = package.load(path).samples
    of_time = samples.filter(pl.col("event") == "CPU_CLK_UNHALTED.REF_TSC")
    found = rows("functions", path)
    assert sum(row["weight"] for row in found) == of_time["weight"].sum()
    assert (
        "142 samples of the event CPU_CLK_UNHALTED.REF_TSC, 95.8 % of them in ranges"
        in opspan("functions", path).stdout
    )


def test_an_event_that_measures_no_time_is_named(traces_dir: Path, tmp_path: Path) -> None:
    trace = package.load(traces_dir / "vtune/r010hs_tasks/r010hs")
    only = trace.samples.filter(pl.col("event") == "INST_RETIRED.ANY")
    Trace.save(trace.replace(samples=only), tmp_path / "run")
    done = opspan("functions", tmp_path / "run")
    assert "56 samples of the event INST_RETIRED.ANY" in done.stdout


def test_many_files_add_up(sampled: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    other.write_bytes(sampled.read_bytes())
    one, two = (package.load_many(*[sampled, other][:count], processes=1).sampled_functions() for count in (1, 2))
    assert two["samples"].to_list() == [2 * count for count in one["samples"]]
    shares = (frame.sort("function", "library")["share"].drop_nulls().to_list() for frame in (one, two))
    first, second = shares
    assert len(second) > len(first)  # with twice as many samples, more functions have enough


def test_a_trace_without_samples_says_so(traces_dir: Path) -> None:
    done = opspan("functions", traces_dir / "nsys/infer_2gpu.sqlite")
    assert (done.returncode, "This trace has no samples of the host's processors" in done.stdout) == (0, True)
