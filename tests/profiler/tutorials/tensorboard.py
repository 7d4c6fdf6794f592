"""The steps of torch's tutorial on the profiler with TensorBoard: training from a DataLoader, files for each cycle."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from small_resnet import resnet, show, told
from torch.profiler import profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images = TensorDataset(torch.rand(32, 3, 32, 32), torch.randint(0, 10, (32,)))
loader = DataLoader(images, batch_size=4, shuffle=True, num_workers=int(sys.argv[1]))
model = resnet()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
model.train()


def train(batch: list[torch.Tensor]) -> None:
    loss = criterion(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


with profile(
    schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
    on_trace_ready=tensorboard_trace_handler("./log/with"),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as prof:
    for step, batch in enumerate(loader):
        prof.step()
        if step >= 1 + 1 + 3:
            break
        train(batch)

# The same without a `with`.
prof = profile(
    schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
    on_trace_ready=tensorboard_trace_handler("./log/by_hand", use_gzip=True),
    with_stack=True,
)
prof.start()
for step, batch in enumerate(loader):
    prof.step()
    if step >= 1 + 1 + 3:
        break
    train(batch)
prof.stop()
show(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1))
[path] = Path("log/with").glob("*.pt.trace.json")
show(path.read_text())
[path] = Path("log/by_hand").glob("*.pt.trace.json.gz")
told()
