"""A user's own ranges through the packages nvtx and ittapi: only where opspan has no native library. No torch ops.

Poorer than the native way: nsys before 2024 does not record what nvtx 0.2.13 and newer write, and ITT gets names only.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opspan.emit.sink_list import ITT, NVTX, TO_ALL, Sink
from opspan.emit.sinks import CRange


@dataclass(frozen=True)
class Package:
    """What a package calls its functions. `start` returns what ends the range."""

    sink: Sink
    name: str
    push: Callable[[Any, str], object]
    pop: Callable[[Any], object]
    mark: Callable[[Any, str], object]
    start: Callable[[Any, str], Callable[[], object]]

    @functools.cached_property
    def module(self) -> Any:
        try:
            return importlib.import_module(self.name)
        except ImportError:
            return None

    def listens(self) -> bool:
        tool = self.sink.tool
        return tool is not None and bool(os.environ.get(tool.variable)) and self.module is not None


def _nvtx_start(nvtx: Any, name: str) -> Callable[[], object]:
    return functools.partial(nvtx.end_range, nvtx.start_range(name))


def _itt_mark(ittapi: Any, name: str) -> None:
    with ittapi.task(name, "opspan"):
        pass


def _itt_start(ittapi: Any, name: str) -> Callable[[], object]:
    task = ittapi.overlapped_task(name, "opspan")
    task.begin()
    end: Callable[[], object] = task.end
    return end


PACKAGES = (
    Package(
        NVTX,
        "nvtx",
        push=lambda nvtx, name: nvtx.push_range(name),
        pop=lambda nvtx: nvtx.pop_range(),
        mark=lambda nvtx, name: nvtx.mark(name),
        start=_nvtx_start,
    ),
    Package(
        ITT,
        "ittapi",
        push=lambda ittapi, name: ittapi.task_begin(ittapi.domain("opspan"), ittapi.string_handle(name)),
        pop=lambda ittapi: ittapi.task_end(ittapi.domain("opspan")),
        mark=_itt_mark,
        start=_itt_start,
    ),
)

_local = threading.local()
_open: dict[int, list[Callable[[], object]]] = {}
_ids = itertools.count(1)


def listening() -> int:
    """Which package is there and has been given a tool by its environment variable."""
    return sum(package.sink.bit for package in _listening(TO_ALL))


def push(ref: Any, to: int) -> int:
    found, depths, name = _listening(to), _depths(), _name(ref)
    depth = depths[found[0].name] if found else -1
    for package in found:
        package.push(package.module, name)
        depths[package.name] += 1
    return depth


def pop(to: int) -> int:
    depths = _depths()
    found = [package for package in _listening(to) if depths[package.name]]
    for package in found:
        package.pop(package.module)
        depths[package.name] -= 1
    return depths[found[0].name] if found else -1


def mark(ref: Any, to: int) -> None:
    for package in _listening(to):
        package.mark(package.module, _name(ref))


def range_start(ref: Any, to: int) -> int:
    range_id = next(_ids)
    _open[range_id] = [package.start(package.module, _name(ref)) for package in _listening(to)]
    return range_id


def range_end(range_id: int) -> None:
    for end in _open.pop(range_id, []):
        end()


def _listening(to: int) -> list[Package]:
    return [package for package in PACKAGES if to & package.sink.bit and package.listens()]


def _name(ref: Any) -> str:
    made: CRange = ref._obj
    return str(made.name.decode())


def _depths() -> Counter[str]:
    """How many ranges of this thread are open, by package."""
    try:
        depths: Counter[str] = _local.depths
    except AttributeError:
        depths = _local.depths = Counter()
    return depths
