"""Runs of a serving engine as torch.profiler writes them: a range around each step, and a host that runs ahead.

engine_run(labels, seed) -> Run: the events of a file, and what is known of each step.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from builders import kineto

US = 1000
ATTENTION = "vllm::unified_attention_with_output"
HEADS, KEY_HEADS, WIDTH = 8, 2, 64


@dataclass
class Run:
    events: list[Any] = field(default_factory=list)
    took_ns: list[int] = field(default_factory=list)  # for each step, from done to done
    host_ns: list[int] = field(default_factory=list)


def engine_run(labels: list[str], seed: int = 0, kernels: list[int] | None = None, tokens: int = 32) -> Run:
    """Each step launches one kernel, in an attention op. Kernels follow each other and take longer than the host.

    `kernels` has the length of each kernel in us, drawn at random if it is not given."""
    draw, run = random.Random(seed), Run()
    at = free = done = 0
    for number, label in enumerate(labels):
        host, kernel = draw.randint(20, 60), draw.randint(10, 200) if kernels is None else kernels[number]
        sizes = [[tokens, HEADS, WIDTH], [tokens, KEY_HEADS, WIDTH], [tokens, KEY_HEADS, WIDTH], [tokens, HEADS, WIDTH]]
        types = ["c10::BFloat16"] * 4
        attention = {"Input Dims": [*sizes, [], [], [], [0]], "Input type": [*types, "", "", "", types[0]]}
        begin = max(at + 12, free)
        run.events += [
            kineto.span("user_annotation", label, kineto.MAIN, at, host),
            kineto.op(ATTENTION, kineto.MAIN, at + 2, 15, **attention),
            kineto.call("cudaLaunchKernel", kineto.MAIN, at + 5, 4, number + 1),
            kineto.kernel("attention", begin, kernel, number + 1),
        ]
        free = begin + kernel
        before, done = done, max(at + host, free)
        run.took_ns.append((done - max(at, before)) * US)
        run.host_ns.append(host * US)
        at += host
    return run
