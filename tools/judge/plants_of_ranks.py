"""Plants (faults that are put into runs) between ranks: communication, and ranks that are late."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from draws import draw_job
from planting import Plant, draw_pressed_ranks, draw_several_ranks, plant, random_step, step_ns, with_fault

from builders.job import Extra, Slower
from builders.job_program import SMALL_NS

# --- ranks


@plant
def data_parallel(random: Random) -> Plant:
    """One process has all devices, and the first device gets the batches of all devices. Its loader has as many workers
    as the loaders of all processes together, so that loading does not take longer."""
    job = draw_several_ranks(random, workers=1)
    return with_fault(job, "data-parallel", ranks=1, devices=job.ranks, batch_ns=job.batch_ns * job.ranks)


@plant
def collectives_after_the_backward(random: Random) -> Plant:
    job = draw_several_ranks(random, kernel=random.uniform(0.6, 3.0), host=0.2, buckets=random.randrange(4, 8))
    ns = round(step_ns(job) * random.uniform(0.2, 0.4) / job.buckets)
    return with_fault(replace(job, reduce_ns=ns), "exposed-communication", exposed=True)


@plant
def slow_network(random: Random) -> Plant:
    job = draw_several_ranks(random, reduce_ns=50_000)
    ns = round(step_ns(job) * random.uniform(0.6, 1.5) / job.buckets)
    return with_fault(job, "exposed-communication", reduce_ns=ns)


@plant
def slow_network_of_one_file(random: Random) -> Plant:
    """Gives opspan the file of one rank only. The file does not show whether the rank transfers data or waits for
    others. A better network would end both."""
    one = slow_network(random)
    return replace(one, rules=frozenset(["communication-or-waiting"]), ranks=(0,))


@plant
def small_collectives(random: Random) -> Plant:
    """Sends gradients of some kilobytes one by one. Together they would fit into one bucket, and the latency would be
    paid only once."""
    job = draw_several_ranks(random, kernel=random.uniform(0.1, 0.3), host=0.05)
    return with_fault(replace(job, reduce_ns=SMALL_NS, buckets=1), "small-collectives", small_collectives=True)


@plant
def gloo(random: Random) -> Plant:
    job = draw_several_ranks(random)
    return with_fault(job, "gloo-on-devices", gloo_ns=round(step_ns(job) * random.uniform(0.5, 1.5)))


@plant
def slow_rank(random: Random) -> Plant:
    job = draw_several_ranks(random)
    rank = random.randrange(job.ranks)
    slower = Slower(random.uniform(1.2, 2.0), ranks=frozenset([rank]))
    return with_fault(job, "straggler", {"ranks": [rank]}, slower=(slower,))


@plant
def late_rank(random: Random) -> Plant:
    job = draw_several_ranks(random)
    rank = random.randrange(job.ranks)
    extra = Extra("begin", round(step_ns(job) * random.uniform(1.0, 2.0)), "sleep", ranks=frozenset([rank]))
    return with_fault(job, "straggler", {"ranks": [rank]}, extras=(extra,))


@plant
def late_once(random: Random) -> Plant:
    job = draw_pressed_ranks(random, has_steps=True, validate_every=0, checkpoint_every=0)
    rank, step = random.randrange(job.ranks), random_step(random, job)
    longer = round(step_ns(job) * random.uniform(2.0, 6.0))
    extra = Extra("begin", longer, "", "user", frozenset([step]), frozenset([rank]))
    place = {"ranks": [rank], "step": f"ProfilerStep#{step}"}
    return with_fault(job, "straggler step-outliers", place, extras=(extra,))


@plant
def two_slow_ranks(random: Random) -> Plant:
    job = draw_job(random, ranks=random.choice((4, 8)), is_training=True)
    ranks = sorted(random.sample(range(job.ranks), 2))
    slower = Slower(random.uniform(1.3, 2.0), ranks=frozenset(ranks))
    return with_fault(job, "straggler stragglers", {"ranks": ranks}, slower=(slower,))


@plant
def uneven_batches(random: Random) -> Plant:
    job = draw_several_ranks(
        random, kernel=random.uniform(0.6, 3.0), host=0.2, uneven=random.uniform(0.3, 0.6), is_even=True
    )
    return with_fault(job, "uneven-ranks", is_even=False)


@plant
def slow_stage(random: Random) -> Plant:
    job = draw_job(random, pipeline=True, ranks=random.choice((2, 4)), micro=random.choice((4, 8)), steps=8)
    rank = random.randrange(job.ranks)
    slower = Slower(random.uniform(1.3, 2.0), ranks=frozenset([rank]))
    return with_fault(job, "straggler slow-stage", {"ranks": [rank]}, slower=(slower,))
