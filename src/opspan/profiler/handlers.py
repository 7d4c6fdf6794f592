"""Functions that make callbacks for `on_trace_ready`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from opspan.errors import WriteError

if TYPE_CHECKING:
    from opspan.profiler.cycles import _KinetoProfile


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[_KinetoProfile], None]:
    """Returns a callback that writes a Chrome trace of each cycle into a folder. TensorBoard's profiler and HTA find
    the files by their names.

    `worker_name` must differ between workers. By default it is the host's name and the process id.
    """

    def handler(profiler: _KinetoProfile) -> None:
        folder = Path(dir_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"cannot create the folder {folder}: {error.strerror}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        suffix = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        profiler.export_chrome_trace(folder / f"{worker}.{time.time_ns()}{suffix}", use_python_export)

    return handler
