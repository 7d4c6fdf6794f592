"""Which rank this process is among others: what torch.distributed says, for the capture to say it, too.

What launchers said is in the capture from its beginning (native/capture); but a program may join its group without any.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from opspan.capture_files import ENVIRONMENT_AT, ENVIRONMENT_BYTES


def distributed() -> dict[str, Any] | None:
    """Where torch.distributed runs, as torch.profiler has it."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return {"backend": str(dist.get_backend()), "rank": dist.get_rank(), "world_size": dist.get_world_size()}


def tell(capture: Path) -> None:
    """Into the capture of this process, which is closed by now."""
    said = distributed()
    if said is None:
        return
    text = f"TORCH_RANK={said['rank']}\0TORCH_WORLD_SIZE={said['world_size']}\0".encode()
    with contextlib.suppress(OSError), capture.open("r+b") as file:  # gone, or on a disk that is read-only by now
        file.seek(ENVIRONMENT_AT)
        before = file.read(ENVIRONMENT_BYTES)
        used = len(before.rstrip(b"\0"))
        used += 1 if used else 0  # the NUL that ends the last one
        if len(before) == ENVIRONMENT_BYTES and used + len(text) < ENVIRONMENT_BYTES:
            file.seek(ENVIRONMENT_AT + used)
            file.write(text)
