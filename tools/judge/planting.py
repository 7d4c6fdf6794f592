"""Defines plants. A plant has a job, the same job with a fault, and the findings that should name the fault.

After plants.py is imported, PLANTS has all plants by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from draws import draw_job

from builders.job import Job
from builders.job_program import rows_of


@dataclass(frozen=True)
class Plant:
    """A job with a fault, and the findings that opspan should report about the fault."""

    without: Job
    job: Job
    rules: frozenset[str]  # a finding of any of these rules names the fault
    place: dict[str, Any] = field(default_factory=dict)  # the place that the finding should name, as in Trial
    ranks: tuple[int, ...] = ()  # the ranks whose files opspan gets; empty means all ranks
    has_time: bool = True  # if False, opspan cannot know what the fault costs, and must name even a cheap fault


ITEM = ("aten::item", "aten::_local_scalar_dense")
Draw = Callable[[Random], Plant]
PLANTS: dict[str, Draw] = {}


def plant(draw: Draw) -> Draw:
    PLANTS[draw.__name__.replace("_", "-")] = draw
    return draw


def step_ns(job: Job) -> int:
    return rows_of(job).ns // job.steps


def with_fault(without: Job, rules: str, place: dict[str, Any] | None = None, **more: Any) -> Plant:
    return Plant(without, replace(without, **more), frozenset(rules.split()), place or {})


def random_step(random: Random, job: Job) -> int:
    return random.randrange(3, job.steps - 1)


def draw_several_ranks(random: Random, **more: Any) -> Job:
    return draw_job(random, ranks=random.choice((2, 4, 8)), is_training=True, **more)


def draw_pressed_ranks(random: Random, **more: Any) -> Job:
    return draw_pressed_job(random, ranks=random.choice((2, 4, 8)), is_training=True, **more)


def draw_pressed_job(random: Random, **more: Any) -> Job:
    """Draws a job whose host hardly runs ahead of the device, so that every wait costs time."""
    host = random.uniform(0.2, 0.6)
    return draw_job(random, host=host, kernel=host * random.uniform(0.9, 1.3), item_every=0, **more)
