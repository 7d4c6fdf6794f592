"""Plants (faults that are put into runs) on the device and in the training loop: kernels, copies, memory, the
optimizer."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from draws import draw_job
from planting import Plant, draw_pressed_job, plant, step_ns, with_fault

from builders.job import Slower
from builders.training_files import DEVICE_BYTES

# --- kernels


@plant
def few_blocks(random: Random) -> Plant:
    return with_fault(draw_job(random), "few-blocks", few_blocks=random.randrange(30, 100))


@plant
def no_tf32(random: Random) -> Plant:
    job = draw_job(random, numbers="tf32")
    return with_fault(job, "tf32-off", numbers="fp32", product=random.uniform(1.6, 3.0))


@plant
def no_tensor_cores(random: Random) -> Plant:
    job = draw_job(random, numbers="bf16")
    return with_fault(job, "no-tensor-cores", numbers="simt16", product=random.uniform(1.6, 3.0))


@plant
def odd_sizes(random: Random) -> Plant:
    return with_fault(draw_job(random, numbers="bf16"), "odd-sizes", odd=True, product=random.uniform(1.4, 2.5))


@plant
def heavy_backward(random: Random) -> Plant:
    slower = Slower(random.uniform(5.0, 12.0), "aten::native_layer_norm_backward")
    place = {"op": "aten::native_layer_norm"}
    return with_fault(draw_job(random, is_training=True), "heavy-backward", place, slower=(slower,))


@plant
def casts(random: Random) -> Plant:
    return with_fault(
        draw_job(random, pipeline=False),
        "casts",
        {"op": ("aten::copy_", "aten::linear")},
        casts=random.uniform(0.3, 0.8),
    )


@plant
def recomputed(random: Random) -> Plant:
    return with_fault(draw_job(random, is_training=True), "recompute", recompute=True)


@plant
def slowing_clocks(random: Random) -> Plant:
    job = draw_job(random, steps=16, micro=1, ranks=random.choice((1, 2)))
    slower = Slower(random.uniform(1.3, 2.0), ramp=True)
    return with_fault(job, "slower-kernels", slower=(slower,))


# --- copies and memory


@plant
def large_batches(random: Random) -> Plant:
    job = draw_job(random, is_training=True)
    ns = round(step_ns(job) * random.uniform(0.2, 0.8) / job.micro)
    return with_fault(job, "exposed-copies", {"op": "aten::copy_"}, batch_ns=ns)


@plant
def there_and_back(random: Random) -> Plant:
    job = draw_job(random, is_training=True)
    ns = round(step_ns(job) * random.uniform(0.03, 0.1))
    return with_fault(job, "there-and-back", {"op": "aten::copy_"}, round_trips=2, round_trip_ns=ns)


@plant
def fallback(random: Random) -> Plant:
    job = draw_job(random, is_training=True)
    ns = round(step_ns(job) * random.uniform(0.1, 0.4))
    return with_fault(job, "cpu-fallback", {"op": "aten::unique_dim"}, fallbacks=random.randrange(1, 4), fallback_ns=ns)


@plant
def copies_on_another_stream(random: Random) -> Plant:
    job = draw_job(random, is_training=True)
    ns = round(step_ns(job) * random.uniform(0.2, 0.6) / job.layers / job.micro)
    return with_fault(job, "queued exposed-copies", side_ns=ns)


@plant
def full_memory(random: Random) -> Plant:
    job = draw_job(random, is_training=True)
    one = with_fault(
        job, "memory-limit growing-memory memory-growth", leak_bytes=round(0.98 * DEVICE_BYTES / job.steps)
    )
    return replace(one, has_time=False)


@plant
def growing_memory(random: Random) -> Plant:
    one = with_fault(draw_job(random, is_training=True), "growing-memory memory-growth", leak_bytes=200 << 20)
    return replace(one, has_time=False)


@plant
def longer_batches(random: Random) -> Plant:
    """Blocks grow from step to step, so that they do not fit into the memory that the previous step freed."""
    job = draw_job(random, is_training=True, pipeline=False)
    one = with_fault(job, "fragmentation", {"op": "aten::add", "module": "Block_"}, longer=random.uniform(0.01, 0.1))
    return replace(one, has_time=False)


# --- training


@plant
def loop_optimizer(random: Random) -> Plant:
    job = draw_pressed_job(random, is_training=True, steps=8, micro=1, layers=3)
    return with_fault(job, "optimizer-loop", loop_optimizer=True)


@plant
def compiled_again(random: Random) -> Plant:
    job = draw_job(random, is_training=True, has_steps=True)
    ns = round(step_ns(job) * random.uniform(3.0, 10.0))
    steps = random.sample(range(2, job.steps), random.randrange(1, 4))
    return with_fault(job, "recompilation", compiles=dict.fromkeys(steps, ns))


@plant
def graph_breaks(random: Random) -> Plant:
    job = draw_job(random, is_training=True, lookup_ns=20_000)
    ns = round(step_ns(job) * random.uniform(0.1, 0.3) / job.micro)
    return with_fault(replace(job, lookup_ns=ns), "graph-breaks", regions=random.randrange(6, 14))


@plant
def profiler_overhead(random: Random) -> Plant:
    job = draw_pressed_job(random, is_training=True)
    ns = round(step_ns(job) * random.uniform(1.0, 3.0))
    return with_fault(job, "profiler-overhead", overhead=dict.fromkeys(random.sample(range(2, job.steps), 3), ns))
