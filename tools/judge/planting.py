"""What plants are: each is a job, and the same job with a fault, of which it is known what should be said.

PLANTS has them all by name, once plants.py has been imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from draws import drawn

from builders.job import Job
from builders.job_program import rows_of


@dataclass(frozen=True)
class Planted:
    without: Job
    job: Job
    rules: frozenset[str]  # any of these names the cause
    place: dict[str, Any] = field(default_factory=dict)  # op, module, function, step: a name, or any of several; ranks
    ranks: tuple[int, ...] = ()  # whose files opspan is given; none: all
    has_time: bool = True  # else it has to be named whatever it costs


ITEM = ("aten::item", "aten::_local_scalar_dense")
Draw = Callable[[Random], Planted]
PLANTS: dict[str, Draw] = {}


def plant(draw: Draw) -> Draw:
    PLANTS[draw.__name__.replace("_", "-")] = draw
    return draw


def step_ns(job: Job) -> int:
    return rows_of(job).ns // job.steps


def made(without: Job, rules: str, place: dict[str, Any] | None = None, **more: Any) -> Planted:
    return Planted(without, replace(without, **more), frozenset(rules.split()), place or {})


def a_step(random: Random, job: Job) -> int:
    return random.randrange(3, job.steps - 1)


def several_ranks(random: Random, **more: Any) -> Job:
    return drawn(random, ranks=random.choice((2, 4, 8)), is_training=True, **more)


def pressed_ranks(random: Random, **more: Any) -> Job:
    return pressed(random, ranks=random.choice((2, 4, 8)), is_training=True, **more)


def pressed(random: Random, **more: Any) -> Job:
    """A job whose host is hardly ahead: what makes it wait costs time."""
    host = random.uniform(0.2, 0.6)
    return drawn(random, host=host, kernel=host * random.uniform(0.9, 1.3), item_every=0, **more)
