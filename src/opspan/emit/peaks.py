"""Measures how fast the processor multiplies matrices and copies memory with torch, and stores the figures. Later
recordings of this processor carry them (native/capture/processor.cpp).

The file PEAKS in the cache folder has a line for each processor. The first three fields identify it: its model, and the
cores and processors that a process may use. So a container with fewer of them has a line of its own.

    AMD EPYC <tab> 2 <tab> 2 <tab> fp32=1.21e+11 bandwidth=1.34e+10 threads=2 host=node7
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opspan import private_files
from opspan.emit import sinks
from opspan.emit.installed_torch import Torch
from opspan.errors import EmitError

PEAKS: Final = "processor-peaks"
_KEY: Final = ("PROCESSOR", "PROCESSOR_CORES", "PROCESSOR_THREADS")
_MOST_BYTES: Final = 64 << 10  # of the file; native/capture reads no more
_MOST_LINES: Final = 100
_LONGEST: Final = 256  # the most characters of one processor's figures
_TYPES: Final = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}
_SECONDS: Final = 0.7  # time for each figure
_LEAST_TRIES: Final = 3
_SMALLEST, _LARGEST = 512, 8192  # rows and columns of the matrices
_LONG_ENOUGH: Final = 0.03  # seconds of one product
_LEAST_COPY, _MOST_COPY = 32 << 20, 512 << 20  # bytes of the buffer to copy. Caches are smaller than the largest
_UNDISTURBED: Final = 0.8  # share of the processors' time. With less, other programs have used much of it


@dataclass(frozen=True)
class MeasuredPeaks:
    """The best rates that were reached.

    Attributes:
        processor: the entries that a capture has about this processor.
        flops: operations a second of matrix products, for each type.
        size: rows and columns of the matrices of fp32.
        bandwidth: bytes a second that a copy read and wrote, or None if there is no memory for a large one.
        copied: bytes of the buffer that was copied.
        threads: how many threads torch used.
        host: the name of the machine.
        share: how much of the time of these threads' processors this process had during the products.
    """

    processor: Mapping[str, str]
    flops: Mapping[str, float]
    size: int
    bandwidth: float | None
    copied: int
    threads: int
    host: str
    share: float

    @property
    def is_disturbed(self) -> bool:
        return self.share < _UNDISTURBED

    def text(self) -> str:
        """Returns the figures as a capture has them."""
        figures = {**self.flops, **({"bandwidth": self.bandwidth} if self.bandwidth else {})}
        parts = [*(f"{name}={rate:.4g}" for name, rate in figures.items()), f"threads={self.threads}"]
        return " ".join([*parts, f"host={self.host}"] if self.host else parts)


def processor() -> dict[str, str]:
    """Returns the entries that a capture has about this machine's processor."""
    return sinks.require().processor()


# --- the stored figures


def stored(entries: Mapping[str, str]) -> str | None:
    """Returns the figures that were stored for this processor, or None."""
    try:
        lines = _lines(private_files.check_folder(private_files.cache_folder()) / PEAKS)
    except OSError:
        return None
    return lines.get(_key(entries)) if entries.get("PROCESSOR") else None


def store(peaks: MeasuredPeaks) -> Path:
    """Stores the figures in place of earlier ones, and returns the file. Raises EmitError if that is not possible."""
    if not peaks.processor.get("PROCESSOR"):
        raise EmitError("the model of this processor is not known, so its figures cannot be stored: say them by --peak")
    try:
        path = private_files.kept_folder(private_files.cache_folder()) / PEAKS
        try:
            lines = _lines(path)
        except FileNotFoundError:
            lines = {}
        lines.pop(_key(peaks.processor), None)
        lines = dict([*lines.items()][-_MOST_LINES:]) | {_key(peaks.processor): peaks.text()}
        with private_files.unfinished(path, overwrite=True) as file:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as out:
                out.writelines(f"{key}{figures}\n" for key, figures in lines.items())
    except OSError as error:
        why = error.strerror or str(error)
        raise EmitError(f"the figures cannot be stored ({why}): set OPSPAN_CACHE_DIR to a folder of yours") from error
    return path


def _key(entries: Mapping[str, str]) -> str:
    return "".join(f"{entries.get(name, '')}\t" for name in _KEY)


def _lines(path: Path) -> dict[str, str]:
    """Returns the figures of each processor. Lines that opspan did not write are left out."""
    with os.fdopen(private_files.opened(path), "rb") as file:
        text = file.read(_MOST_BYTES).decode("ascii", "replace")
    lines = {}
    for line in text.split("\n"):
        *key, figures = line.split("\t")
        if len(key) == len(_KEY) and key[0] and figures.isprintable() and len(figures) <= _LONGEST:
            lines["".join(f"{part}\t" for part in key)] = figures
    return lines


# --- measuring


def measure(report: Callable[[str], None]) -> MeasuredPeaks:
    """Measures for some seconds. `report` gets a text before each measurement. Raises TorchUnsupported without
    torch."""
    Torch.here()
    import torch

    entries = processor()
    used = torch.get_num_threads()
    candidates = {int(text) for name in _KEY[1:] if (text := entries.get(name, "")).isdecimal()} or {used}
    try:
        with torch.inference_mode():
            rates: dict[int, tuple[float, int, float]] = {}
            for threads in sorted(candidates):
                torch.set_num_threads(threads)
                report(f"products in fp32 with {threads} threads" if threads > 1 else "products in fp32 with 1 thread")
                rates[threads] = _product(torch, torch.float32, threads)
            threads = max(rates, key=lambda threads: rates[threads][0])
            torch.set_num_threads(threads)
            best, size, share = rates[threads]
            flops = {"fp32": best}
            for name in ("fp64", "bf16"):
                if name != "bf16" or _has_bf16(torch):
                    report(f"products in {name}")
                    flops[name], _, _ = _product(torch, getattr(torch, _TYPES[name]), threads)
            report("copies")
            bandwidth, copied = _copy(torch)
    finally:
        torch.set_num_threads(used)
    host = "".join(char for char in platform.node() if "!" <= char <= "~")[:64]
    return MeasuredPeaks(entries, flops, size, bandwidth, copied, threads, host, share)


def _product(torch: Any, dtype: Any, threads: int) -> tuple[float, int, float]:
    """Returns the operations a second, the size of the matrices, and the share of the processors' time."""
    size, run = _SMALLEST, _multiplication(torch, dtype, _SMALLEST)
    while min(_took(run) for _ in range(_LEAST_TRIES)) < _LONG_ENOUGH and size < _LARGEST:
        size *= 2
        run = _multiplication(torch, dtype, size)
    began, used = time.perf_counter(), time.process_time()
    best = _best(run)
    share = (time.process_time() - used) / ((time.perf_counter() - began) * threads)
    return 2 * size**3 / best, size, share


def _multiplication(torch: Any, dtype: Any, size: int) -> Callable[[], object]:
    one, other, result = (torch.ones(size, size, dtype=dtype) for _ in range(3))
    return lambda: torch.mm(one, other, out=result)


def _copy(torch: Any) -> tuple[float | None, int]:
    """Returns the bytes a second that were read and written, and the bytes of the buffer."""
    count = min(_MOST_COPY, _free_bytes() // 4)
    if count < _LEAST_COPY:
        return None, 0
    source, target = (torch.ones(count, dtype=torch.uint8) for _ in range(2))
    return 2 * count / _best(lambda: target.copy_(source)), count


def _best(run: Callable[[], object]) -> float:
    until, times = time.perf_counter() + _SECONDS, [_took(run)]
    while len(times) < _LEAST_TRIES or time.perf_counter() < until:
        times.append(_took(run))
    return min(times)


def _took(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _has_bf16(torch: Any) -> bool:
    """Returns whether torch has products in bf16 that use instructions of this processor."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


def _free_bytes() -> int:
    """Returns how much memory this process can take: of the machine and, if the container has a limit, of that."""
    free = [_MOST_COPY]
    for line in _words("/proc/meminfo"):
        if line[0] == "MemAvailable:" and line[1].isdecimal():
            free.append(int(line[1]) * 1024)
    limits = [_words(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current")]
    if all(words and words[0][0].isdecimal() for words in limits):
        free.append(int(limits[0][0][0]) - int(limits[1][0][0]))
    return min(free[1:] or free)


def _words(path: str) -> list[list[str]]:
    with contextlib.suppress(OSError), Path(path).open(encoding="ascii", errors="replace") as file:
        return [words for line in file.read(1 << 16).splitlines() if len(words := line.split()) > 0]
    return []
