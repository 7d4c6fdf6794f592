"""The rank of this process in torch.distributed, written into the capture.

native/capture writes the environment variables of launchers when it creates the file, but a program may join its group
without a launcher.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from opspan.emit import header_texts


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
    header_texts.add(capture, {"TORCH_RANK": state["rank"], "TORCH_WORLD_SIZE": state["world_size"]})
