"""Records a training loop with no profiler installed, and prints its ops, layers and steps.

    python docs/examples/record_training.py

The first two steps are left out, as they are slower than those that follow.
"""

import torch

import opspan

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(32, 64), torch.randint(10, (32,))

steps = opspan.schedule(wait=1, warmup=1, active=3)
with opspan.record(record_shapes=True, modules=True, schedule=steps) as recording:
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        recording.step()

# As torch.profiler prints it. `group_by_input_shapes=True` gives a row for each op and its sizes.
averages = recording.events().key_averages(group_by_input_shapes=True)
print(averages.table(sort_by="self_cpu_time_total", row_limit=8))

# The same as frames of polars, in nanoseconds. `self_cpu_ns` counts each nanosecond once: a layer's has its forward and
# its backward, of which `backward_cpu_ns` is the second.
for by in ("module", "step"):
    rows = recording.trace.table(by).rows
    print(rows.select(by, "self_cpu_ns", "backward_cpu_ns").drop_nulls(by).sort(by))
