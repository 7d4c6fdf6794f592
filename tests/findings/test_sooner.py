"""How much sooner a run would have ended without some work of its devices: against the run simulated without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import opspan
from builders.job import Job
from builders.job_program import rows_of
from builders.training_files import kineto_files, nsys_files
from builders.training_plan import Run as Recorded
from opspan.findings.run import Run
from opspan.findings.saved import merge, reduce, saved_ns

_col = pl.col
SOURCES = {"kineto": kineto_files, "nsys": nsys_files}
FEW = 66  # blocks, of 132 multiprocessors: each kernel takes twice as long
JOBS = {
    "the device sets the pace": Job(kernel=2.0, host=0.1),
    "the host sets the pace": Job(kernel=0.2, host=0.9),
    "a short queue": Job(kernel=1.0, host=0.2, depth=60),
    "ranks that meet": Job(ranks=4, kernel=0.6, host=0.5, uneven=0.2),
    "copies on another stream": Job(kernel=0.5, host=0.3, side_ns=60_000),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", JOBS)
def test_kernels_that_take_less(name: str, source: str, tmp_path: Path) -> None:
    job = replace(JOBS[name], few_blocks=FEW, steps=8)
    rows = rows_of(job)
    gain_ns = rows.ns - rows_of(replace(job, few_blocks=0)).ns

    run = Run(opspan.load(*SOURCES[source](tmp_path, Recorded(job, *rows[:4]))).analysed)
    few = run.computing.filter(_col("blocks") == FEW).with_columns(half_ns=_col("ns") // 2)
    found = saved_ns(run, reduce(run, few, "half_ns"))

    assert found == pytest.approx(gain_ns, rel=0.05, abs=0.005 * rows.ns)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["the host sets the pace", "ranks that meet"])
def test_kernels_of_an_op_that_are_one(name: str, source: str, tmp_path: Path) -> None:
    job = replace(JOBS[name], split=6, steps=8, layers=2)
    rows = rows_of(job)
    gain_ns = rows.ns - rows_of(replace(job, split=1)).ns

    run = Run(opspan.load(*SOURCES[source](tmp_path, Recorded(job, *rows[:4]))).analysed)
    parts = run.computing.with_columns(of="range").filter(pl.len().over("of") == job.split)
    found = saved_ns(run, merge(run, parts))

    assert found == pytest.approx(gain_ns, rel=0.05, abs=0.005 * rows.ns)
