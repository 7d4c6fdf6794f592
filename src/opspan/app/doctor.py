"""Checks what works on this machine, and says how to repair what does not. cli/doctor prints the list of checks."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from opspan import libraries, private_files
from opspan.app import launch, page
from opspan.emit import (
    compiler,
    device,
    observer,
    observer_cache,
    packages,
    peaks,
    python_frames,
    ranges,
    sinks,
    tools,
)
from opspan.emit.installed_torch import Torch
from opspan.emit.sink_list import SINKS, Sink, Tool
from opspan.errors import EmitError, ObserverError, OpspanError, TorchUnsupported
from opspan.tables import processors
from opspan.views.fields import short_number

State = Literal["ok", "optional", "WRONG"]


@dataclass(frozen=True)
class Check:
    """One line of the output. The state is "WRONG" if something that opspan needs is missing or broken, and "optional"
    if something is missing that opspan does not need."""

    name: str
    state: State
    found: str
    todo: str = ""  # how to repair what is wrong, or to get what is optional


def checks() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    torch: Torch | None = None
    try:
        torch = Torch.here()
    except TorchUnsupported as error:
        install = 'pip install "torch>=2.4"'
        if getattr(error.__cause__, "name", "") == "torch":
            yield Check("torch", "optional", "not installed: reading traces needs none, labelling ops does", install)
        else:
            yield Check("torch", "WRONG", str(error), install)
    else:
        yield Check("torch", "ok", f"{torch.version} ({torch.root})")
    looks: dict[str, Callable[[], Check]] = {
        "compiler": lambda: _compiler(torch),
        "observer": lambda: _observer(torch),
        "stacks": _stacks,
        "page": _page,
        "cache": _cache,
        "sinks library": _sinks,
        "own ranges": _own_ranges,
        "collectors library": _collectors,
        "devices": lambda: _devices(torch),
        "peaks": _peaks,
        "nsys": lambda: _tool("nsys", "Nsight Systems: https://developer.nvidia.com/nsight-systems"),
        "vtune": lambda: _tool(
            "vtune", "VTune: https://www.intel.com/content/www/us/en/developer/tools/oneapi/vtune-profiler.html"
        ),
    }
    for sink in SINKS:
        if sink.tool is not None:
            name = f"{sink.name.upper()} tool"
            looks[name] = functools.partial(_attached, name, sink, sink.tool)
    for name, look in looks.items():
        try:
            yield look()
        except Exception as error:  # noqa: BLE001  # doctor reports errors instead of failing
            yield Check(name, "WRONG", launch.why(error))


def fix() -> None:
    """Runs all repairs. If one raises an OpspanError, the others still run, and the error is raised afterwards."""
    failed: list[OpspanError] = []
    for step in (page.build_missing, _fix_observer):
        try:
            step()
        except OpspanError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise OpspanError("; and ".join(map(str, failed))) from failed[0]


def _fix_observer() -> None:
    """Builds the observer if it is missing, and deletes cached observers that can no longer be used."""
    torch = Torch.here()
    observer.load()
    for path in observer_cache.stale(torch):
        path.unlink(missing_ok=True)


def _compiler(torch: Torch | None) -> Check:
    cxx = compiler.find()
    if cxx is not None:
        return Check("compiler", "ok", cxx.identity)
    todo = "apt-get install g++, or set CXX"
    if torch is None:
        return Check("compiler", "optional", f"{compiler.why_none()}; without torch none is needed", todo)
    if observer.ready_made(torch) is not None:
        found = f"{compiler.why_none()}; opspan came with an observer for this torch"
        return Check("compiler", "optional", found, todo)
    if observer_cache.cached(torch) is not None:
        return Check("compiler", "optional", f"{compiler.why_none()}; the observer is built already", todo)
    return Check("compiler", "WRONG", compiler.why_none(), todo)


def _observer(torch: Torch | None) -> Check:
    if torch is None:
        return Check("observer", "optional", "is built for a torch, and there is none")
    stale = observer_cache.stale(torch)
    more = f"; {len(stale)} stale or broken: `opspan doctor --fix` removes" if stale else ""
    if observer.ready_made(torch) is not None:
        used = observer.load()
        came = f"came with opspan for torch {used.built_for.split()[0]}" if used.built_for else "built here"
        return Check("observer", "ok", f"{used.path}: {came}{more}")
    cached = observer_cache.cached(torch)
    if cached is None:
        if refused := observer_cache.find(torch).refused:
            more = f"; what is there is not used, for {refused}{more}"
        return Check(
            "observer",
            "optional",
            f"not built yet for torch {torch.version}: the first use does{more}",
            "opspan doctor --fix",
        )
    try:
        observer.load()
    except ObserverError as error:
        return Check("observer", "WRONG", str(error), "opspan doctor --fix")
    return Check("observer", "ok", f"{cached}{more}")


def _stacks() -> Check:
    """Checks whether record(stacks=True) can read the call stacks of this version of Python."""
    if why := python_frames.why_not():
        return Check("stacks", "optional", f"none are recorded: {why}")
    return Check("stacks", "ok", "those of this Python can be read")


def _devices(torch: Torch | None) -> Check:
    """Checks which devices `record(device=True)` and opspan.profiler can collect on."""
    names = sorted(activity.name for activity in device.activities()) if torch is not None else []
    if not names:
        return Check("devices", "optional", "torch finds none that it can collect on: ops of the host alone")
    if tool := device.other_tool():
        return Check("devices", "optional", f"{', '.join(names)}: left to {tool}, as they serve one tool at a time")
    return Check("devices", "ok", ", ".join(names))


def _peaks() -> Check:
    """Checks whether recordings carry the peaks of this processor, see measure_peaks.py."""
    native = sinks.load()
    figures = None if native is None else peaks.stored(native.processor())
    if figures is None:
        found = "the processor's are not measured: `opspan flops` has no shares of them"
        return Check("peaks", "optional", found, "opspan doctor --measure-peaks")
    rates = processors.from_capture({"PROCESSOR_PEAKS": figures}).get("peaks", {})
    units = {name: "B/s" if name == processors.BANDWIDTH else "FLOP/s" for name in rates}
    texts = [f"{name} {short_number(rate, units[name])}" for name, rate in rates.items()]
    return Check("peaks", "ok", f"of the processor, as measured: {', '.join(texts)}")


def _cache() -> Check:
    try:
        folder = private_files.kept_folder(private_files.cache_folder())
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"not empty")
            file.flush()
            more = (
                "" if libraries.may_run(file.fileno()) else "; mounted noexec: the observer is loaded from a copy of it"
            )
    except OSError as error:
        # An error without `strerror` comes from a check of opspan: this user can write the folder, but others could
        # change it, too.
        found = str(error) if error.strerror is None else f"{error.filename} cannot be written ({error.strerror})"
        return Check("cache", "WRONG", found, "export OPSPAN_CACHE_DIR=a folder of yours")
    return Check("cache", "ok", f"{folder}{more}")


def _page() -> Check:
    """Checks whether the JavaScript of `opspan report` was built."""
    path = libraries.page("page.js")
    if path.is_file():
        return Check("page", "ok", str(path.parent))
    if not libraries.page_sources().is_dir():
        return Check("page", "optional", "opspan was built without it: `opspan report` writes none")
    return Check("page", "optional", f"not built: {page.why()}", "opspan doctor --fix")


def _sinks() -> Check:
    try:
        return Check("sinks library", "ok", str(sinks.require().path))
    except EmitError as error:
        return Check("sinks library", "WRONG", str(error), "pip install --force-reinstall opspan")


def _own_ranges() -> Check:
    """Checks which library sends the ranges and marks of `opspan.annotate` and `opspan.mark` to tools."""
    if sinks.load() is not None:
        return Check("own ranges", "ok", "annotate and mark use the sinks library")
    there = [package.name for package in packages.PACKAGES if package.module is not None]
    if not there:
        return Check("own ranges", "WRONG", "nothing carries annotate and mark", "pip install nvtx ittapi")
    found = f"annotate and mark use {' and '.join(there)}, as the sinks library cannot be loaded; ops get no labels"
    return Check("own ranges", "optional", found, "pip install --force-reinstall opspan")


def _collectors() -> Check:
    path = libraries.collectors()
    try:
        libraries.check_for_others(path)
        libraries.load(path)
    except OSError as error:
        return Check("collectors library", "WRONG", str(error), "pip install --force-reinstall opspan")
    return Check("collectors library", "ok", str(path))


def _tool(name: str, source: str) -> Check:
    path = shutil.which(name)
    if path is None:
        return Check(name, "optional", "not on the PATH (`opspan run` needs no tool)", source)
    try:
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(
            name, "WRONG", f"{path} does not run: {error}", f"install it again, or take it off the PATH: {source}"
        )
    lines = (version.stdout or version.stderr).strip().splitlines()
    if version.returncode:
        return Check(
            name, "WRONG", f"{path} does not run: {' '.join(lines[:1]) or f'exit code {version.returncode}'}", source
        )
    return Check(name, "ok", f"{lines[0] if lines else 'it does not say its version'} ({path})")


def _attached(name: str, sink: Sink, tool: Tool) -> Check:
    if ranges.listening() & sink.bit:
        return Check(name, "ok", "attached to this process")
    wrong = tools.problem(sink)
    if wrong is not None:
        return Check(name, "WRONG", wrong, "unset that variable, or name the tool's own library")
    return Check(
        name,
        "optional",
        "none listens to this process",
        f"{tool.command} opspan doctor, or opspan run -- opspan doctor",
    )
