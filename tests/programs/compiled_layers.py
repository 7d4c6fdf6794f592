"""A model of two equal blocks and a head: compiled_layers.py EAGER COMPILED records it twice, eager and compiled."""

import sys

import torch

import opspan


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.fc(x)))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = torch.nn.ModuleList([Block(), Block()]), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model, x = Net(), torch.randn(4, 8)
with opspan.record(sys.argv[1], modules=True):
    model(x).sum().backward()
compiled = torch.compile(model)
with opspan.record(sys.argv[2], compiled=True) as recording:
    recording.turn(False)
    compiled(x).sum().backward()
    recording.turn(True)
    for _ in range(2):
        compiled(x).sum().backward()
