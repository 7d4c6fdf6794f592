"""Offers torch.utils.tensorboard's SummaryWriter, because code snippets import it here. torch.profiler never had it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "SummaryWriter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter
