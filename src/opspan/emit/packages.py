"""Sends a user's own ranges through the packages nvtx and ittapi. This is for installs without opspan's native library.

The packages get only the names of ranges, and no ops are labelled. Releases of nsys before 2024 do not record ranges
that the package nvtx 0.2.13 or newer sends.
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
    """The functions of a package. `start` returns a function that ends the range."""

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
        start=lambda nvtx, name: functools.partial(nvtx.end_range, nvtx.start_range(name)),
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
    """Returns, as bits, the sinks whose package is installed and whose environment variable names a tool."""
    return sum(package.sink.bit for package in _listening(TO_ALL))


def push(ref: Any, to: int) -> int:
    packages, depths, name = _listening(to), _depths(), _name(ref)
    depth = depths[packages[0].name] if packages else -1
    for package in packages:
        package.push(package.module, name)
        depths[package.name] += 1
    return depth


def pop(to: int) -> int:
    depths = _depths()
    packages = [package for package in _listening(to) if depths[package.name]]
    for package in packages:
        package.pop(package.module)
        depths[package.name] -= 1
    return depths[packages[0].name] if packages else -1


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
    range_: CRange = ref._obj
    return str(range_.name.decode())


def _depths() -> Counter[str]:
    """Returns the number of open ranges of this thread, by package."""
    try:
        depths: Counter[str] = _local.depths
    except AttributeError:
        depths = _local.depths = Counter()
    return depths
