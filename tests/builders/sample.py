"""The sample that `opspan demo --gpu-sample` shows: a job of two ranks with planted faults, as torch.profiler's files.

    PYTHONPATH=tests python tests/builders/sample.py

writes them to src/opspan/app/sample. tests/cli/test_demo_sample.py compares them with what the simulator makes now.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from builders.job import Extra, Job, Slower
from builders.job_program import rows_of
from builders.training_files import kineto_files
from builders.training_plan import Run

# Batches come late, the loss is fetched in each step, step 5 saves a checkpoint, and the second rank is slower.
JOB = Job(
    seed=1,
    ranks=2,
    steps=8,
    layers=3,
    load_ns=1_200_000,
    item_every=1,
    extras=(Extra("end", 9_000_000, "save_checkpoint", "function", frozenset({5})),),
    slower=(Slower(1.25, ranks=frozenset({1})),),
)


def write(folder: Path) -> list[Path]:
    return kineto_files(folder, Run(JOB, *rows_of(JOB)[:4]))


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "src" / "opspan" / "app" / "sample"
    target.mkdir(exist_ok=True)
    for plain in write(target):
        packed = plain.with_name(f"{plain.name}.gz")
        packed.write_bytes(gzip.compress(plain.read_bytes(), 9, mtime=0))
        plain.unlink()
