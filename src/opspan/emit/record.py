"""record: what `opspan run` captures, in process and with no tool at all. Reading it is readers.capture's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from opspan.addresses import check_local
from opspan.emit import ranks
from opspan.emit.compiled import compiling
from opspan.emit.device import Devices
from opspan.emit.observer import ALL_INPUTS
from opspan.emit.recording import Recording
from opspan.emit.schedule import Schedule
from opspan.emit.sessions import Session
from opspan.emit.sink_list import CAPTURES
from opspan.emit.sinks import Sinks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.profiler import ProfilerActivity

    from opspan.events import EventList
    from opspan.trace import Trace


class record(Session):  # noqa: N801  # stands beside emit_nvtx and emit_itt
    """Every autograd op of every thread, recorded to a file by opspan itself: no tool, no `opspan run`.

    `path` is the folder to write to, created if need be; each process, a fork for instance, writes a file of its own
    there. Without one the folder is temporary and goes once `trace` was read, or at exit. A folder that holds an
    earlier recording is refused; `add=True` adds to it. Processes that run at the same time, as the ranks of one job,
    may share one. `trace` is this recording alone, whatever else is there. `memory` records what memory of the host
    torch takes and gives back, on every thread; `stacks` the functions of Python that ops are called in; `overloads`
    which overload of its op each is; `device` what runs on devices, by torch's own collection there.

        with opspan.record(record_shapes=True) as rec:
            train()
        rec.trace.ranges
        print(rec.events().key_averages().table())
    """

    _sinks = CAPTURES
    _what = "recording"
    _recording = Recording(None, False)  # of one that was made in compiled code: it records nothing
    _trace: Trace | None = None
    _devices: Devices | None = None

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        record_shapes: bool = False,
        *,
        add: bool = False,
        memory: bool = False,
        stacks: bool = False,
        overloads: bool = False,
        device: bool = False,
        modules: bool = False,
        schedule: Schedule | None = None,
        enabled: bool = True,
    ) -> None:
        if compiling():  # as torch.profiler.profile there: it cannot be entered
            return
        super().__init__(enabled, record_shapes, modules, schedule)
        self.memory, self.stacks, self.overloads = memory, stacks, overloads
        self._devices = Devices() if device else None
        if isinstance(path, bool):
            raise TypeError(f"record({path}): the first argument is the folder: write record(record_shapes={path})")
        if path is not None and not os.fspath(path):
            raise ValueError("record(path=''): name a folder, or leave path out for a temporary one")
        self._recording = Recording(None if path is None else check_local(Path(path)).absolute(), add)

    def __enter__(self) -> record:
        if not compiling():
            super().__enter__()
        return self

    @property
    def path(self) -> Path | None:
        """The folder."""
        return self._recording.folder

    @property
    def file(self) -> Path | None:
        """The file of the process that entered it, in `path`."""
        return self._recording.file

    @property
    def trace(self) -> Trace:
        """What was recorded, read when first asked for."""
        if self._trace is None:
            if self._is_running():
                raise RuntimeError("still recording: leave the context manager first")
            self._trace = self._recording.read(keep=not self._is_owner())
        return self._trace

    def events(self) -> EventList:
        """What was recorded as torch's kind of list."""
        return self.trace.events()

    def _start_sink(self, native: Sinks) -> str:
        self._recording.start(native, self._sink)
        return "capture"

    def _stop_sink(self, native: Sinks) -> None:
        super()._stop_sink(native)
        if self.file is not None and self._is_owner():
            ranks.tell(self.file)

    def _inputs(self) -> int:
        return ALL_INPUTS

    def turn_devices(self, on: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Have torch collect no more of these for a while, or go on."""
        if self._devices is not None and self._is_running() and self._is_owner():
            self._devices.toggle(on, activities)

    def _collects(self) -> bool:
        return self._devices is not None

    def _tell(self, on: bool) -> None:
        if self._devices is None or self.file is None:
            return
        if on:
            self._devices.start()
        else:
            self._devices.stop(self.file)

    def _discard(self) -> None:
        self._recording.discard()
