"""The rank of this process in torch.distributed, written into the capture.

native/capture writes the environment variables of launchers when it creates the file, but a program may join its group
without a launcher.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from opspan.capture_files import ENVIRONMENT_AT, ENVIRONMENT_BYTES


def distributed() -> dict[str, Any] | None:
    """Returns the state of torch.distributed in torch.profiler's form, or None if torch.distributed is not in use."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return {"backend": str(dist.get_backend()), "rank": dist.get_rank(), "world_size": dist.get_world_size()}


def tell(capture: Path) -> None:
    """Writes the rank into the closed capture of this process."""
    state = distributed()
    if state is None:
        return
    text = f"TORCH_RANK={state['rank']}\0TORCH_WORLD_SIZE={state['world_size']}\0".encode()
    with contextlib.suppress(OSError), capture.open("r+b") as file:  # the file is gone, or the disk is read-only by now
        file.seek(ENVIRONMENT_AT)
        before = file.read(ENVIRONMENT_BYTES)
        used = len(before.rstrip(b"\0"))
        used += 1 if used else 0  # the NUL at the end of the last entry
        if len(before) == ENVIRONMENT_BYTES and used + len(text) < ENVIRONMENT_BYTES:
            file.seek(ENVIRONMENT_AT + used)
            file.write(text)
