"""Manages the folder of the exports that nsys made from reports: locks exports in use, and removes old exports.

An export is at least as large as its report. If an export was removed, nsys makes it again in seconds to minutes. Each
use of an export sets its access time. The exports with the oldest access times are removed, until the remaining exports
are within the limits for size and age.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from opspan import private_files
from opspan.errors import NotReadable

MOST_BYTES = 10 << 30
MOST_SECONDS = 30 * 24 * 3600
UNFINISHED_SECONDS = 24 * 3600  # an older unfinished export was left by a killed process


def folder() -> Path:
    try:
        return private_files.cache_folder() / "exports"
    except OSError as error:
        raise NotReadable("there is no home folder to write exports to; set OPSPAN_CACHE_DIR to a folder") from error


def hold(export: Path, stack: ExitStack) -> bool:
    """Locks the export against removal until the stack is closed. Returns False if the export does not exist, or if
    another user could have written it."""
    try:
        descriptor = private_files.opened(export)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Another process may have removed the export before this process locked it.
        facts = os.fstat(descriptor)
        if not os.path.samestat(facts, export.stat()):
            return False
    except (FileNotFoundError, PermissionError):
        return False
    with suppress(OSError):  # on a read-only disk the file's time cannot be set, and need not be
        os.utime(descriptor, ns=(time.time_ns(), facts.st_mtime_ns))
    return True


def remove_old(folder: Path) -> None:
    """Removes old exports until the remaining exports are within the limits for size and age. Ignores errors, because
    an error here must not stop the reading of a report."""
    now = time.time()
    used: list[tuple[float, int, Path]] = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    if now - facts.st_mtime > UNFINISHED_SECONDS:
                        shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name.endswith(".sqlite"):
                    used.append((facts.st_atime, facts.st_size, Path(entry.path)))
    total = sum(size for _, size, _ in used)
    for last_used, size, path in sorted(used):
        if (total > MOST_BYTES or now - last_used > MOST_SECONDS) and _remove(path):
            total -= size


def _remove(export: Path) -> bool:
    try:
        with export.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the export is in use
            export.unlink()
    except OSError:
        return False
    return True
