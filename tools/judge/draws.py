"""Draws jobs without a fault at random, from a seed: training, inference and pipelines, of 1 to 8 ranks.

They have small and large kernels, hosts that run ahead by up to a full launch queue, accumulated gradients, validation,
checkpoints, warm-up and uneven batches.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

from builders.job import Job

_MOST = 2_500  # the maximum number of kernels in all ranks; judging such a job takes a second


def draw_job(random: Random, **fixed: Any) -> Job:
    """Draws a job at random. The fields in `fixed` get the given values instead."""
    kind = random.choices(("training", "inference", "pipeline"), (7, 2, 1))[0]
    kind = (
        "pipeline" if fixed.get("pipeline") else "training" if "is_training" in fixed or "pipeline" in fixed else kind
    )
    fields: dict[str, Any] = {
        "seed": random.randrange(1 << 30),
        "ranks": random.choice((1, 1, 2, 4, 8)),
        "steps": random.randrange(8, 25),
        "layers": random.randrange(2, 7),
        "kernel": _log(random, 0.15, 4.0),
        "host": _log(random, 0.1, 1.0),
        "depth": random.choice((1022, 1022, 500, 200, 60)),
        "noise": random.choice((0.002, 0.01, 0.02, 0.03)),
        "uneven": random.choice((0.0, 0.0, 0.0, 0.05, 0.2)),
        "micro": random.choice((1, 1, 1, 2, 4)),
        "validate_every": random.choice((0, 0, 0, 5)),
        "checkpoint_every": random.choice((0, 0, 0, 0, 7)),
        "item_every": random.choice((0, 0, 5, 10)),
        "warm_up": random.choice((0, 0, 1, 3)),
        "workers": random.choice((0, 1)),
        "load_ns": random.choice((40_000, 100_000, 300_000)),
        "batch_ns": random.choice((20_000, 40_000, 80_000)),
        "buckets": random.randrange(2, 6),
        "reduce_ns": random.choice((50_000, 150_000, 300_000)),
        "numbers": random.choice(("bf16", "bf16", "tf32")),
        "has_steps": random.random() < 0.85,
        "has_functions": random.random() < 0.7,
    }
    if kind == "inference":
        some = {"validate_every": 0, "checkpoint_every": 0, "item_every": 0, "micro": 1, "ranks": 1}
        fields |= {"is_training": False, "graphs": random.random() < 0.4, **some}
    elif kind == "pipeline":
        fields |= {"pipeline": True, "ranks": random.choice((2, 4)), "micro": random.choice((4, 8))}
    job = Job(**(fields | fixed))
    kernels_of_step = job.ranks * job.micro * (11 * job.layers + 10) * job.split
    return replace(job, steps=min(job.steps, max(_MOST // kernels_of_step, 8)))


def _log(random: Random, least: float, most: float) -> float:
    return math.exp(random.uniform(math.log(least), math.log(most)))
