"""Results that take long to make, and are made once by the first worker that needs them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path


def made_once(output: Path, make: Callable[[Path], object]) -> Path:
    """`output`, which `make` makes under another name; whoever asks meanwhile waits."""
    with output.with_name(f"{output.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.is_file():
            made = output.with_name(f"{output.name}.made")
            make(made)
            made.rename(output)
    return output
