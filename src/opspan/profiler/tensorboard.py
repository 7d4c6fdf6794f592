"""Offers torch.utils.tensorboard's SummaryWriter, because some code snippets wrongly import it from torch.profiler."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "SummaryWriter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter
