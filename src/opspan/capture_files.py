"""Defines the names of a recording's files, for the code that writes them and the code that reads them.

PID-TIME.opspan                 a capture: the events of one process on the CPU (docs/formats/capture.md)
PID-TIME.000001.opspan          a segment of a capture, if it is a rolling recording
PID-TIME.N.device.json          a device file: a torch.profiler trace of events on devices, the N-th of the capture
perf.data, perf.txt             what `perf record` wrote about all processes, and its text (docs/formats/perf.md)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CAPTURE: Final = ".opspan"
DEVICE: Final = ".device.json"
PERF_DATA: Final = "perf.data"
PERF_TEXT: Final = "perf.txt"
MAGIC: Final = b"OPSPANCP"  # the first bytes of a capture

# In a device file, the value of this key has the file's times: {"monotonic_ns": [begin, end], "utc_ns": [begin, end]}.
SESSION: Final = "opspan"
# In the header of a capture, the byte offset and size of the environment variables that tell a process its rank.
ENVIRONMENT_AT: Final = 3232
ENVIRONMENT_BYTES: Final = 832
# Facts about the process that an emitter adds to these variables when it ends.
FACT_ENTRIES: Final = ("TORCH_THREADS", "USABLE_PROCESSORS", "PROCESSOR_LIST", "PROCESS_BEGAN_NS", "TORCH_IMPORT_NS")


def device_file(capture: Path, number: int) -> Path:
    return capture.with_name(f"{capture.stem}.{number}{DEVICE}")


def segments(path: Path) -> list[Path]:
    """Returns the segments of a rolling recording that still exist, in order of time. `path` is any segment of the
    recording."""
    return sorted(path.parent.glob(f"{path.name.partition('.')[0]}.*{CAPTURE}"))


def captures(folder: Path) -> list[Path]:
    """Returns the captures in a folder, sorted by name. So captures with the same process id are in order of time."""
    return sorted(folder.glob(f"*{CAPTURE}"))


def device_files(path: Path) -> list[Path]:
    """Returns the device files that belong to a capture, or to any capture in a folder."""
    is_folder = os.path.isdir(path)  # noqa: PTH112  # raises for no path: the reader reports what is wrong
    files = captures(path) if is_folder else [path] if path.suffix == CAPTURE else []
    if not files:
        return []
    stems = {file.stem for file in files}
    beside = (path if is_folder else path.parent).glob(f"*{DEVICE}")
    return sorted(file for file in beside if file.name.partition(".")[0] in stems)


def perf_text(path: Path) -> Path | None:
    """Returns the samples that perf took while a capture, or the captures in a folder, were written; None if there are
    none."""
    is_folder = os.path.isdir(path)  # noqa: PTH112  # raises for no path: the reader reports what is wrong
    text = (path if is_folder else path.parent) / PERF_TEXT
    is_capture = bool(captures(path)) if is_folder else path.suffix == CAPTURE
    return text if is_capture and text.is_file() else None
