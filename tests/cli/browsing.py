"""A browser that tests can look at: a program that writes the addresses that it is given into a file."""

from __future__ import annotations

from pathlib import Path


def fake_browser(folder: Path, *, exit_code: int = 0) -> tuple[dict[str, str | None], Path]:
    """Returns the environment of a session with this browser, and the file of the addresses. The browser also prints,
    as real ones do."""
    opened = folder / "opened.txt"
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" >> {opened}\necho noise\necho noise >&2\nexit {exit_code}\n')
    program.chmod(0o755)
    return {**no_display(), "BROWSER": str(program)}, opened


def no_display() -> dict[str, str | None]:
    return dict.fromkeys(("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"))
