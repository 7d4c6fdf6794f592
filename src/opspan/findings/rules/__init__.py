"""The rules, in a file for each subject. docs/findings.md is made from them."""

from __future__ import annotations

from opspan.findings.rule import Rule
from opspan.findings.rules import (
    casts,
    communication,
    compiled,
    copies,
    data_loading,
    data_parallel,
    exposed_copies,
    host,
    idle,
    kernels,
    launches,
    layouts,
    memory,
    outliers,
    processors,
    recompute,
    recording,
    slower_kernels,
    tensor_cores,
    training,
    waits,
)

RULES: tuple[Rule, ...] = (
    *data_loading.RULES,
    *host.RULES,
    *waits.RULES,
    *launches.RULES,
    *idle.RULES,
    *outliers.RULES,
    *kernels.RULES,
    *slower_kernels.RULES,
    *tensor_cores.RULES,
    *casts.RULES,
    *communication.RULES,
    *data_parallel.RULES,
    *copies.RULES,
    *layouts.RULES,
    *exposed_copies.RULES,
    *training.RULES,
    *recompute.RULES,
    *memory.RULES,
    *compiled.RULES,
    *processors.RULES,
    *recording.RULES,
)
