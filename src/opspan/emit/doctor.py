"""What works on this machine, what does not, and the command that mends it: a list of facts. cli/doctor prints it."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from opspan.emit import compiler, libraries, observer, ranges, sinks
from opspan.errors import EmitError, ObserverError, TorchUnsupported

State = Literal["ok", "later", "no", "FAILS"]


@dataclass(frozen=True)
class Check:
    """One line. Only FAILS means that something opspan needs is not there; "no" is a tool that one may do without."""

    name: str
    state: State
    found: str
    mend: str = ""


def checks() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    torch: observer.Torch | None = None
    try:
        torch = observer.Torch.here()
    except TorchUnsupported as error:
        yield Check("torch", "FAILS", str(error), 'pip install "torch>=2.4"')
    else:
        yield Check("torch", "ok", f"{torch.version} ({torch.root})")
    cached = observer.cached(torch) if torch is not None else None
    yield _compiler(cached)
    if torch is not None:
        yield _observer(torch, cached)
    yield _cache()
    yield _sinks()
    yield _collectors()
    yield _tool("nsys", "Nsight Systems: https://developer.nvidia.com/nsight-systems")
    yield _tool("vtune", "VTune: https://www.intel.com/content/www/us/en/developer/tools/oneapi/vtune-profiler.html")
    yield from _attached()


def fix() -> None:
    """Build the observer, and remove the ones that fit nothing here any more."""
    torch = observer.Torch.here()
    observer.load()
    for path in observer.stale(torch):
        path.unlink(missing_ok=True)


def _compiler(cached: Path | None) -> Check:
    found = compiler.find()
    if found is not None:
        return Check("compiler", "ok", found.identity)
    mend = "apt-get install g++, or set CXX"
    if cached is not None:
        return Check("compiler", "no", "none found; the observer is built already", mend)
    return Check("compiler", "FAILS", f"none found (CXX, {', '.join(compiler.CANDIDATES)})", mend)


def _observer(torch: observer.Torch, cached: Path | None) -> Check:
    stale = observer.stale(torch)
    more = f"; {len(stale)} stale or broken: `opspan doctor --fix` removes" if stale else ""
    if cached is None:
        return Check("observer", "later", f"not built yet for torch {torch.version}{more}", "opspan doctor --fix")
    try:
        observer.load()
    except ObserverError as error:
        return Check("observer", "FAILS", str(error), "opspan doctor --fix")
    return Check("observer", "ok", f"{cached}{more}")


def _cache() -> Check:
    folder = observer.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check(
            "cache",
            "FAILS",
            f"{folder} cannot be written ({error.strerror})",
            "export OPSPAN_CACHE_DIR=a folder of yours",
        )
    return Check("cache", "ok", str(folder))


def _sinks() -> Check:
    try:
        return Check("sinks library", "ok", str(sinks.require().path))
    except EmitError as error:
        return Check("sinks library", "FAILS", str(error), "pip install --force-reinstall opspan")


def _collectors() -> Check:
    path = libraries.collectors()
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return Check("collectors library", "FAILS", str(error), "pip install --force-reinstall opspan")
    return Check("collectors library", "ok", str(path))


def _tool(name: str, source: str) -> Check:
    path = shutil.which(name)
    if path is None:
        return Check(name, "no", "not on the PATH (`opspan run` needs no tool)", source)
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, "no", f"{path} does not run: {error}", source)
    said = (asked.stdout or asked.stderr).strip().splitlines()
    return Check(name, "ok", f"{said[0] if said else 'it does not say its version'} ({path})")


def _attached() -> Iterator[Check]:
    try:
        listening = ranges.listening()
    except EmitError:
        return  # said above
    for name, bit, variable, tool in (
        ("NVTX tool", sinks.TO_NVTX, "NVTX_INJECTION64_PATH", "nsys profile -t nvtx,osrt opspan doctor"),
        ("ITT tool", sinks.TO_ITT, "INTEL_LIBITTNOTIFY64", "vtune -collect hotspots -- opspan doctor"),
    ):
        if listening & bit:
            yield Check(name, "ok", f"attached ({os.environ.get(variable, 'by other means')})")
        else:
            yield Check(name, "no", "none attached to this process", f"{tool}, or opspan run -- opspan doctor")
