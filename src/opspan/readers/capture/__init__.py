"""Reads opspan's own captures: one `*.opspan` file of one process, or the folder that `opspan run` and `record` fill.

docs/formats/capture.md describes the bytes. The modules that read captures import numpy, so they are imported only if
the path is a capture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opspan.capture_files import CAPTURE, MAGIC
from opspan.late_names import finder

if TYPE_CHECKING:
    from opspan.readers.capture.reading import read as read
    from opspan.readers.capture.reading import read_part as read_part
    from opspan.readers.capture.reading import read_recording as read_recording

_NAMES = ("read", "read_part", "read_recording")
__getattr__ = finder(__name__, {name: f"{__name__}.reading:{name}" for name in _NAMES})


def sniff(path: Path, head: bytes) -> bool:
    """Returns whether the path is a capture. `head`: the first bytes of a file, empty for a folder."""
    if path.is_dir():
        return next(path.glob(f"*{CAPTURE}"), None) is not None
    return head.startswith(MAGIC)
