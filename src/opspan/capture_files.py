"""What the files of a recording are called, for those who write them and those who read them.

PID-TIME.opspan                 a capture: the host's part of one process (docs/formats/capture.md)
PID-TIME.N.device.json          what torch's own collection saw of devices meanwhile: a torch.profiler trace, for the
                                N-th time that it was on
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

CAPTURE: Final = ".opspan"
DEVICE: Final = ".device.json"
# The member of the device's file that says when it was collected: {"monotonic_ns": [begin, end], "utc_ns": [the same]}.
SESSION: Final = "opspan"


def device_file(capture: Path, number: int) -> Path:
    return capture.with_name(f"{capture.stem}.{number}{DEVICE}")


def device_files(path: Path) -> list[Path]:
    """Those of a capture, or of all captures of a folder."""
    if path.is_dir():
        captures = {file.stem for file in path.glob(f"*{CAPTURE}")}
        return sorted(file for file in path.glob(f"*{DEVICE}") if file.name.split(".")[0] in captures)
    if path.suffix != CAPTURE:
        return []
    return sorted(file for file in path.parent.glob(f"*{DEVICE}") if file.name.split(".")[0] == path.stem)
