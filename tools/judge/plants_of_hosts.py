"""Plants (faults that are put into runs) on the host: data, waits, slow code, single steps."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from draws import draw_job
from planting import ITEM, Plant, draw_pressed_job, draw_several_ranks, plant, random_step, step_ns, with_fault

from builders.job import Extra, Job, Slower
from builders.job_program import LOADER_OF_WORKERS
from builders.training import LOADER

# --- data


@plant
def slow_loader(random: Random) -> Plant:
    job = draw_job(random, workers=0, load_ns=0)  # the finding states the complete loading time
    longer = round(step_ns(job) * random.uniform(0.2, 1.0) / job.micro)
    return with_fault(job, "data-loading", {"op": LOADER}, load_ns=longer)


@plant
def slow_workers(random: Random) -> Plant:
    job = draw_job(random, workers=1, pipeline=False)
    longer = round(step_ns(job) * random.uniform(1.2, 2.0) / job.micro)
    return with_fault(job, "data-loading", {"op": LOADER_OF_WORKERS}, load_ns=job.load_ns + longer)


@plant
def slow_loader_of_a_rank(random: Random) -> Plant:
    job = draw_several_ranks(random, workers=0)
    rank = random.randrange(job.ranks)
    extra = Extra("load", round(step_ns(job) * random.uniform(0.3, 1.0)), ranks=frozenset([rank]))
    return with_fault(job, "straggler data-loading", {"ranks": [rank]}, extras=(extra,))


# --- waits


@plant
def item_each_step(random: Random) -> Plant:
    return with_fault(draw_pressed_job(random, is_training=True, micro=1, layers=2), "item", {"op": ITEM}, item_every=1)


@plant
def items_in_a_step(random: Random) -> Plant:
    return with_fault(draw_pressed_job(random), "item", {"op": ITEM}, items=random.randrange(4, 9))


@plant
def pageable_batches(random: Random) -> Plant:
    job = draw_pressed_job(random, is_training=True)
    job = replace(job, batch_ns=round(step_ns(job) * random.uniform(0.1, 0.3) / job.micro))
    return with_fault(job, "blocking-copies", {"op": "aten::copy_"}, pageable=True)


@plant
def synchronised(random: Random) -> Plant:
    return with_fault(draw_pressed_job(random, is_training=True), "synchronise", synchronises=random.randrange(4, 9))


@plant
def synchronised_after_loading(random: Random) -> Plant:
    job = draw_pressed_job(random, is_training=True, micro=1, layers=2, load_ns=30_000)
    return with_fault(job, "synchronise", sync_after_load=True)


@plant
def emptied_cache(random: Random) -> Plant:
    job = draw_job(random, is_training=True, has_steps=True)
    ns = round(step_ns(job) * random.uniform(0.2, 0.6))
    return with_fault(job, "allocation", {"op": "aten::empty"}, mallocs=random.randrange(1, 4), malloc_ns=ns)


@plant
def kernels_loaded_late(random: Random) -> Plant:
    # Use at most one step of warm-up. With a longer warm-up, kernels are loaded late even without the fault.
    job = draw_job(random, is_training=True, has_steps=True, warm_up=random.choice((0, 1)))
    steps = frozenset(random.sample(range(2, job.steps), 3))
    return with_fault(job, "module-loading step-outliers", {"op": "aten::topk"}, module_loads=steps)


# --- hosts


@plant
def small_kernels(random: Random) -> Plant:
    split = random.randrange(6, 13)
    job = draw_job(random, kernel=random.uniform(0.2, 0.6), host=random.uniform(0.3, 0.6), steps=8, layers=3, micro=1)
    return with_fault(job, "small-kernels", split=split)


@plant
def slow_host(random: Random) -> Plant:
    job = draw_job(random, kernel=random.uniform(0.1, 0.3), host=random.uniform(0.1, 0.2))
    return with_fault(job, "launch-bound", host=job.host * random.uniform(4, 7))


def _slow(random: Random, job: Job, name: str, kind: str, what: str) -> Plant:
    at, layer = random.choice((("begin", 0), ("layer", 1), ("backward", 0), ("optimizer", 0)))
    extra = Extra(at, round(step_ns(job) * random.uniform(1.0, 2.0)), name, kind, layer=layer)
    return with_fault(job, "late-host", {what: name}, extras=(extra,))


@plant
def slow_function(random: Random) -> Plant:
    job = draw_job(random, is_training=True, has_functions=True)
    return _slow(random, job, "metrics.py(7): log_metrics", "function", "function")


@plant
def slow_range(random: Random) -> Plant:
    return _slow(random, draw_job(random, is_training=True), "log_metrics", "user", "op")


@plant
def slow_op_of_the_host(random: Random) -> Plant:
    return _slow(random, draw_job(random, is_training=True), "aten::unique_consecutive", "op", "op")


@plant
def slow_code_without_a_name(random: Random) -> Plant:
    job = draw_job(random, is_training=True)
    extra = Extra(random.choice(("begin", "end")), round(step_ns(job) * random.uniform(1.0, 2.0)))
    return with_fault(job, "late-host", extras=(extra,))


# --- single steps


def _once(random: Random, name: str, kind: str, at: str) -> Plant:
    job = draw_pressed_job(random, is_training=True, has_steps=True, validate_every=0, checkpoint_every=0)
    step = random_step(random, job)
    extra = Extra(at, round(step_ns(job) * random.uniform(2.0, 6.0)), name, kind, frozenset([step]))
    place = {"step": f"ProfilerStep#{step}"} | ({"op": name} if name else {})
    return with_fault(job, "step-outliers", place, extras=(extra,))


@plant
def stall(random: Random) -> Plant:
    return _once(random, "", "user", random.choice(("begin", "optimizer", "end")))


@plant
def checkpoint_once(random: Random) -> Plant:
    return _once(random, "save_checkpoint", "user", "end")


@plant
def slow_op_once(random: Random) -> Plant:
    return _once(random, "aten::unique_consecutive", "op", random.choice(("layer", "backward")))


@plant
def slow_batch_once(random: Random) -> Plant:
    one = _once(random, "", "user", "load")
    return replace(one, rules=frozenset(["step-outliers", "data-loading"]))


@plant
def slow_kernels_once(random: Random) -> Plant:
    job = draw_job(random, is_training=True, has_steps=True, validate_every=0, checkpoint_every=0, host=0.3)
    step = random_step(random, job)
    slower = Slower(random.uniform(2.5, 6.0), steps=frozenset([step]))
    return with_fault(job, "step-outliers", {"step": f"ProfilerStep#{step}"}, slower=(slower,))
