"""Adds texts to the header of this process's capture, after the environment variables that native/capture wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from opspan.capture_files import ENVIRONMENT_AT, ENVIRONMENT_BYTES


def add(capture: Path, texts: Mapping[str, object]) -> None:
    """Adds NAME=value for each text. Adds nothing if there is no room for all of them."""
    text = "".join(f"{name}={value}\0" for name, value in texts.items()).encode()
    with contextlib.suppress(OSError), capture.open("r+b") as file:  # the file is gone, or the disk is read-only by now
        file.seek(ENVIRONMENT_AT)
        before = file.read(ENVIRONMENT_BYTES)
        used = len(before.rstrip(b"\0"))
        used += 1 if used else 0  # the NUL at the end of the last entry
        if len(before) == ENVIRONMENT_BYTES and used + len(text) < ENVIRONMENT_BYTES:
            file.seek(ENVIRONMENT_AT + used)
            file.write(text)
