"""The steps of torch's profiler recipe, on a CPU: times, memory, a trace, stacks, a long run."""

from __future__ import annotations

from pathlib import Path

import torch
from small_resnet import resnet, show, told
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(0)
model = resnet()
inputs = torch.randn(5, 3, 32, 32)
model(inputs)

# Times, by op and by the sizes of its inputs.
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof, record_function("model_inference"):
    model(inputs)
show(prof.key_averages().table(sort_by="cpu_time_total", row_limit=-1))
show(prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=-1))

# Memory of its own, and with what it calls.
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as prof:
    model(inputs)
for key in ("self_cpu_memory_usage", "cpu_memory_usage"):
    show(prof.key_averages().table(sort_by=key, row_limit=-1))

# A trace to look at.
with profile(activities=[ProfilerActivity.CPU]) as prof:
    model(inputs)
prof.export_chrome_trace("trace.json")
show(Path("trace.json").read_text())

# Show the places that called ops.
with profile(
    activities=[ProfilerActivity.CPU],
    with_stack=True,
    experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
) as prof:
    model(inputs)
by_stack = prof.key_averages(group_by_stack_n=2)
by_stack.table(sort_by="self_cpu_time_total", row_limit=2)
show(" ".join(row.key for row in by_stack if row.key.startswith("aten::")))  # torch lists functions of Python, too
prof.export_stacks("stacks.txt", "self_cpu_time_total")


# A long run: some steps of each cycle.
def trace_handler(prof: profile) -> None:
    show(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1))
    prof.export_chrome_trace(f"trace_{prof.step_num}.json")


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(skip_first=2, wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=trace_handler,
) as prof:
    for _ in range(12):
        model(inputs)
        prof.step()
told()
