"""Hides the C and C++ compilers of this machine from programs, as on a machine that has none."""

from __future__ import annotations

import os
import re
from pathlib import Path

_COMPILER = re.compile(r"(\+\+|cc|clang|icpx)(-[\d.]+)?$")


def path_without_compilers(folder: Path) -> str:
    """Fills a folder with links to all commands of the PATH but compilers. Returns the folder, as a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for command in sorted(Path(place).glob("*")):
            link = folder / command.name
            if not _COMPILER.search(command.name) and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)
