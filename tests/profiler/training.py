"""The training of programs under test: a small model with an optimizer that has a state."""

HEAD = """
import json
import torch, opspan
import torch.profiler
from opspan import profiler
CPU = [torch.profiler.ProfilerActivity.CPU]
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters())
def train():
    optimizer.zero_grad()
    model(torch.ones(3, 8)).sum().backward()
    optimizer.step()
"""
