"""Uses torch.profiler to record kernels, copies and API calls of CUDA, ROCm or XPU.

The observer records everything else. Whenever torch.profiler stops, it writes a trace beside the capture.
`opspan.loading` merges these files.
"""

from __future__ import annotations

import atexit
import json
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opspan import private_files
from opspan.capture_files import SESSION, device_file
from opspan.emit import notices
from opspan.emit.labelling import torch_profiles
from opspan.emit.observer import load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.profiler import ProfilerActivity

# Environment variables that tools set in the programs that they run. A device serves one tool at a time.
_TOOLS: Final = {
    "NSYS_PROFILING_SESSION_ID": "nsys",
    "QUADD_INJECTION_CONFIG": "nsys",
    "CUDA_INJECTION64_PATH": "the tool of CUDA_INJECTION64_PATH",
    "ROCP_TOOL_LIBRARIES": "the tool of ROCP_TOOL_LIBRARIES",
    "HSA_TOOLS_LIB": "the tool of HSA_TOOLS_LIB",
}


def activities() -> set[ProfilerActivity]:
    """Returns the activities that torch.profiler can record on the devices of this machine."""
    from torch.profiler import ProfilerActivity, supported_activities

    return set(supported_activities()) - {ProfilerActivity.CPU}


def other_tool() -> str | None:
    """Returns the tool that already records devices. The devices are then left to that tool."""
    return next((tool for variable, tool in _TOOLS.items() if os.environ.get(variable)), None)


class Devices:
    """Runs torch.profiler for the devices during one recording.

    A process has one torch.profiler. Stopping it twice, exporting nothing, or leaving it on at exit ends the process
    with a segmentation fault. So its state is checked before each of these actions.
    """

    def __init__(self) -> None:
        self._running: Any = None  # torch's profiler
        self._began = (0, 0)
        self._times = 0

    def start(self) -> None:
        """Starts torch.profiler. If that fails, a warning says why, and the rest of the recording goes on."""
        if tool := other_tool():
            _left_out(f"{tool} collects on them, and they serve one tool at a time")
            return
        if not (requested := activities()):
            _left_out("torch finds none that it can collect on")
            return
        if torch_profiles() or _is_on_here():
            _left_out("torch.profiler is on, and it cannot be on twice")
            return
        from torch.profiler import profile

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that events of the previous cycle are gone
                running = profile(activities=requested)
                running.start()
            load().threads(on=True)
        except Exception as error:  # noqa: BLE001  # it may fail for any reason, such as another profiler that is on
            _left_out(f"torch's collection did not start: {error}")
            return
        self._running, self._began = running, _now()
        atexit.register(self._end)

    def stop(self, capture: Path) -> None:
        """Stops torch.profiler, and writes its trace beside the capture."""
        running = self._running
        if running is None:
            return
        if not _is_on_here():
            _left_out("they were to be stopped on the thread that they were started on, with no torch.profiler between")
            return
        self._running = None
        atexit.unregister(self._end)
        self._times += 1
        try:
            load().threads(on=False)
            monotonic_ns, utc_ns = zip(self._began, _now(), strict=True)
            running.add_metadata_json(SESSION, json.dumps({"monotonic_ns": monotonic_ns, "utc_ns": utc_ns}))
            running.stop()
            with private_files.unfinished(device_file(capture, self._times), overwrite=False) as unfinished:
                running.export_chrome_trace(str(unfinished))
                unfinished.chmod(0o600)  # the same mode as the capture
        except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
            _left_out(str(error))

    def _end(self) -> None:
        """Stops torch.profiler when the process exits during the recording."""
        if self._running is not None and _is_on_here():
            try:
                self._running.stop()
            except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
                _left_out(str(error))

    def toggle(self, enable: bool, requested: Iterable[ProfilerActivity]) -> None:
        """Pauses or resumes the recording of these activities."""
        if self._running is not None and (ours := set(requested) & set(self._running.activities)):
            self._running.toggle_collection_dynamic(enable, ours)


def _is_on_here() -> bool:
    """Returns whether torch.profiler is on for this thread."""
    from torch.autograd import _profiler_enabled

    return bool(_profiler_enabled())


def _now() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()


def _left_out(why: str) -> None:
    notices.warn_at_end(f"kernels and copies of devices are not recorded: {why}", stacklevel=6)
