"""A small model under torch.compile, forward and backward on the CPU, recorded by torch.profiler: lines.py TRACE."""

import sys

import torch
from torch.profiler import ProfilerActivity, profile


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(64, 64)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)  # a line
        y = torch.relu(y) * 2  # a line
        return self.norm(y + x)  # a line


model = torch.compile(Model())
x = torch.randn(32, 64)
model(x).sum().backward()
with profile(activities=[ProfilerActivity.CPU]) as recorded:
    for _ in range(2):
        model(x).sum().backward()
recorded.export_chrome_trace(sys.argv[1])
