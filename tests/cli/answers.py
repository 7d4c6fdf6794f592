"""Reads the answers of verbs as a program does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emit.running import opspan


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    done = opspan(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found
