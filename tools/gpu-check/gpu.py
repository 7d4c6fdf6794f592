"""The code that all parts share: the device, the results of a part, and stand-ins for CUDA in a dry run."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

DRY = os.environ.get("GPU_CHECK_DRY") == "1"
DEVICE = "cpu" if DRY else "cuda"


class Pieces:
    """The results of a part. A part consists of pieces, which are single measurements. The result of a piece is written
    as soon as the piece has run. If a piece fails, the other pieces still run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: dict[str, Any] = {}
        self.began = time.monotonic()

    def piece(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Runs a function as a piece, and returns its result. If the function raises an error, returns a dict with the
        reason under "failed"."""
        began = time.monotonic()
        try:
            answer = function(*arguments, **options)
        except Exception as error:  # noqa: BLE001  the error is the result, and the next piece follows
            answer = reason(error)
        self.results[name] = answer
        (self.folder / "result.json").write_text(json.dumps(self.results, indent=1, default=str), encoding="utf-8")
        now = time.monotonic()
        said = answer["failed"] if isinstance(answer, dict) and "failed" in answer else "done"
        print(f"{now - self.began:6.1f} s  {name}: {now - began:.1f} s, {said}", flush=True)
        return answer


def reason(error: Exception) -> dict[str, str]:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "failed": f"{type(error).__name__}: {error}"[:800],
        "at": f"{Path(where.filename).name}:{where.lineno}: {where.line}",
    }


def facts() -> dict[str, Any]:
    """Returns properties of the card, and the versions of libraries on which the figures depend."""
    answer: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "dry": DRY}
    if not DRY:
        import triton

        properties = torch.cuda.get_device_properties(0)
        answer |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "cudnn": torch.backends.cudnn.version(),
            "triton": triton.__version__,
        }
    return answer


def profiled(path: Path, function: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """Runs the function under torch.profiler and writes its Chrome trace. Returns a summary of its events."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if not DRY:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, **options) as profiler:
        function()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    return contents(events_of(path))


def events_of(path: Path) -> list[dict[str, Any]]:
    """Returns the events of a Chrome trace that have a duration, in order of time."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return sorted((event for event in events if event.get("ph") == "X"), key=lambda event: event["ts"])


def contents(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns for each category the number of its events, and how many of them have each arg."""
    kinds: dict[str, Counter[str]] = {}
    for event in events:
        kinds.setdefault(event.get("cat", ""), Counter()).update(["events", *event.get("args", {})])
    return {kind: dict(counter) for kind, counter in kinds.items()}


class _Event:
    def __init__(self, **_: Any) -> None:
        self.at = 0.0

    def record(self, *_: Any) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3

    def synchronize(self) -> None: ...

    def wait(self, *_: Any) -> None: ...


class _Stream:
    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None: ...


class _Graph:
    def enable_debug_mode(self) -> None: ...

    def debug_dump(self, path: str) -> None: ...

    def replay(self) -> None: ...


@contextlib.contextmanager
def _within(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _nothing(*_: Any, **__: Any) -> int:
    return 0


def replace_cuda() -> None:
    """Replaces the functions of torch.cuda that the parts call by functions that do nothing. Fails if torch lacks one
    of these functions."""
    instead = {
        "Event": _Event,
        "Stream": _Stream,
        "CUDAGraph": _Graph,
        "stream": _within,
        "graph": _within,
        "current_stream": _Stream,
    }
    for name in (
        *instead,
        *("synchronize", "_sleep", "empty_cache", "max_memory_allocated", "reset_peak_memory_stats"),
    ):
        mock.patch.object(torch.cuda, name, instead.get(name, _nothing)).start()
    for name in ("range_push", "range_pop", "range_start", "range_end"):
        mock.patch.object(torch.cuda.nvtx, name, _nothing).start()
    for name in ("start", "stop"):
        mock.patch.object(torch.cuda.profiler, name, _nothing).start()
    mock.patch.object(torch.Tensor, "pin_memory", lambda tensor: tensor).start()
