"""A ResNet that fits a test: the blocks of the large ones, few of them and narrow; and what the tutorials show."""

from __future__ import annotations

import json
import re

import torch
from torch import nn

SHOWN: list[object] = []


class Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
        self.short = nn.Sequential()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(x)) + self.short(x))


def resnet() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    blocks = nn.Sequential(Block(4, 4), Block(4, 8, 2), Block(8, 16, 2))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(stem, nn.MaxPool2d(3, 2, 1), blocks, head)


def show(text: object) -> None:
    """Prints it, as the tutorials do, and notes what can be the same twice: the names in it."""
    print(text)
    names = r"aten::\w+|enumerate\(\w+\)|ProfilerStep\*|model_inference|Optimizer\.\w+#[\w.]+|[A-Z]\w*Backward0"
    SHOWN.append(sorted(set(re.findall(names, str(text)))))


def told() -> None:
    print(json.dumps(SHOWN))
