"""Where the tools of other people are, and what their programs here say. tools/peers makes the environments."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def python_of(name: str) -> Path:
    """The interpreter that has the tool; without it the test is skipped."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("OPSPAN_PEERS") or cache / "opspan-peers") / name
    if not (folder / "complete").is_file():
        pytest.skip(f"no {name} in {folder}: tools/peers makes it")
    return folder / "bin" / "python"


def figures_of(name: str, *arguments: str | Path, program: str = "", **environment: str) -> list[dict[str, Any]]:
    """What the tool says of each file. It does not see opspan, and reads files that are not its own: give it time.

    `program`: that of the programs here which asks it, where that is not called like the tool.
    """
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python_of(name), "-I", HERE / f"{program or name}_figures.py", *arguments]
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
