"""Findings on serving engines: a step is compared with steps that have the same work."""

from __future__ import annotations

from pathlib import Path

import opspan
from builders import kineto
from builders.serving import engine_run

DECODE, PREFILL = "step[DECODE bs=32]", "step[EXTEND bs=2 toks=4096]"


def test_a_long_decode_is_an_outlier_of_decodes_and_a_prefill_is_none(tmp_path: Path) -> None:
    labels, kernels = [], []
    for turn in range(10):
        labels += [PREFILL, *[DECODE] * 3]
        kernels += [2000, 100, 100, 700 if turn == 5 else 100]
    trace = opspan.load(kineto.write(tmp_path / "run.json", kineto.document(engine_run(labels, 3, kernels).events)))
    assert trace.steps().filter("is_outlier")["step"].to_list() == [f"{DECODE} #17"]
    found = trace.findings().filter(id="step-outliers")
    assert found.height == 1
    # It took 600 us longer than other decodes. Compared with all steps, it would not have taken longer at all.
    assert 500_000 < found["at_stake_ns"][0] <= 600_000
