"""record: captures the same as `opspan run`, but inside the process and without any tool. readers.capture reads the
files."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opspan.addresses import check_local
from opspan.emit import compile_log, process_facts, ranks, unharmed
from opspan.emit.compiled import compiling
from opspan.emit.device import Devices
from opspan.emit.dumps import Dumping
from opspan.emit.keep import EVERYTHING, EXCEPTION, SLOW_STEP, parse
from opspan.emit.observer import ALL_INPUTS
from opspan.emit.recording import Recording
from opspan.emit.schedule import Schedule, every_step
from opspan.emit.sessions import Session
from opspan.emit.sink_list import CAPTURES
from opspan.emit.sinks import Sinks
from opspan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from torch.profiler import ProfilerActivity

    from opspan.events import EventList
    from opspan.trace import Trace


class record(Session):  # noqa: N801  # stands beside emit_nvtx and emit_itt
    """Record every autograd op of every thread to a file of opspan's own: no tool is needed, and no `opspan run`.

    ```python
    import opspan
    import torch

    with opspan.record(record_shapes=True) as recording:
        torch.nn.Linear(8, 4)(torch.randn(2, 8))
    print(recording.events().key_averages().table())
    ```

    Args:
        path: the folder to write to. Every process, forked ones included, writes its own file there, and the ranks of
            one job may share the folder. Without `path` the folder is temporary, and is deleted once `trace` was read,
            or at exit.
        record_shapes: record the sizes of the inputs of each op.
        add: write to a folder that holds an earlier recording. Without `add` such a folder is an error.
        memory: record each time that torch takes or gives back memory of the host, on every thread.
        stacks: record, for each op, the Python functions that call it.
        python: record every call of a Python function.
        overloads: record the name of each op's overload.
        device: record what runs on devices, with torch.profiler.
        modules: record a range for every call of a nn.Module.
        compiled: record what torch.compile says: the ops and source lines that each of its kernels was made from, and
            why it compiled again (docs/compiled.md).
        schedule: which steps to record; call `step()` after each training step.
        keep: how much of the recording to keep while the job runs, such as "30s", "2GB" or "50 steps". Older parts are
            dropped. `dump` copies what is kept.
        dump_to: a folder for automatic copies.
        dump_on: when these copies are made: "exception", "signal" (SIGUSR2), "slow step" or "exit".
        slow: a step is slow if it takes this many times the median.
        dumps: how many of the last copies stay.
        enabled: if False, nothing is recorded.
    """

    _sinks = CAPTURES
    _what = "recording"
    _recording = Recording(None, False)  # used if compiled code creates the `record`, which then records nothing
    _trace: Trace | None = None
    _devices: Devices | None = None
    _dumping: Dumping | None = None
    _was_deleted = False  # whether somebody deleted the file during the recording

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        record_shapes: bool = False,
        *,
        add: bool = False,
        memory: bool = False,
        stacks: bool = False,
        python: bool = False,
        overloads: bool = False,
        device: bool = False,
        modules: bool = False,
        compiled: bool = False,
        schedule: Schedule | None = None,
        keep: str | Sequence[str] | None = None,
        dump_to: str | os.PathLike[str] | None = None,
        dump_on: Collection[str] = (EXCEPTION,),
        slow: float = 3.0,
        dumps: int = 10,
        enabled: bool = True,
    ) -> None:
        if compiling():  # compiled code cannot enter a `record`, as with torch.profiler.profile
            return
        limits = EVERYTHING if keep is None else parse(keep)
        if dump_to is not None:
            self._dumping = Dumping(dump_to, dump_on, slow, dumps)
        if device and limits:
            raise UsageError("keep= and device=True: torch's collection of devices cannot roll; leave one of them out")
        if dump_to is not None and not limits:
            raise UsageError("dump_to= is of a recording that keeps the last alone: expected keep= as well")
        if schedule is None and (limits.steps or (self._dumping is not None and SLOW_STEP in self._dumping.on)):
            schedule = every_step
        super().__init__(enabled, record_shapes, modules, schedule, compiled)
        self.memory, self.stacks, self.python, self.overloads = memory, stacks, python, overloads
        self._devices = Devices() if device else None
        if isinstance(path, bool):
            raise TypeError(f"record({path}): the first argument is the folder: write record(record_shapes={path})")
        if path is not None and not os.fspath(path):
            raise ValueError("record(path=''): name a folder, or leave path out for a temporary one")
        self._recording = Recording(None if path is None else check_local(Path(path)).absolute(), add, limits)

    def __enter__(self) -> record:
        if compiling():
            return self
        if self._dumping is not None:
            self._dumping.check()
        super().__enter__()
        if self._dumping is not None and self._is_running():
            self._dumping.start(self.dump)
        return self

    def __exit__(self, *error: object) -> None:
        ends = self._dumping is not None and not compiling() and self._is_active() and self._is_owner()
        super().__exit__()
        if ends and self._dumping is not None:
            kind = error[0] if error else None
            self._dumping.leaving(kind if isinstance(kind, type) and issubclass(kind, BaseException) else None)
            self._dumping.stop()

    def step(self) -> None:
        super().step()
        if self._dumping is not None and self._is_owner():
            self._dumping.step()

    def _step_was_counted(self) -> None:
        """Notes a step that the caller has counted. The caller also makes the step's range."""
        self._step_is_over()
        if self._dumping is not None:
            self._dumping.step()

    def dump(self, path: str | os.PathLike[str]) -> Path:
        """Copy what is kept now to a new folder, which `opspan.load` reads. The recording goes on meanwhile."""
        if not self._recording.keep:
            raise UsageError("dump() is of a recording that keeps the last alone: record(keep='30s')")
        if self.entered and not self._is_owner():
            raise RuntimeError("a fork keeps nothing: dump() where the recording was entered")
        target, labelling = Path(path).absolute(), self._labelling
        if self.compiled and self._is_on():  # the files with the compile log may be gone by now
            compile_log.send(self._sink.bit)
        held = contextlib.nullcontext() if labelling is None else labelling.native.capture_held(self._sink.number)
        with held:
            self._recording.dump(target)
        return target

    @property
    def dumps(self) -> list[Path]:
        """Returns the folders that were written into `dump_to`, the oldest first."""
        return [] if self._dumping is None else list(self._dumping.written)

    @property
    def path(self) -> Path | None:
        """The folder that is written to."""
        return self._recording.folder

    @property
    def file(self) -> Path | None:
        """The file in `path` that belongs to the process that entered the recording. With `keep`, the newest file."""
        return self._recording.file

    @property
    def trace(self) -> Trace:
        """Returns the recording as a trace, which is read at the first use."""
        if self._trace is None:
            if self._is_running():
                raise RuntimeError("still recording: leave the context manager first")
            if self.failed:
                raise RuntimeError(f"nothing was recorded: {self.failed}")
            self._trace = self._recording.read(keep=not self._is_owner())
        return self._trace

    def events(self) -> EventList:
        """Returns the recording as a list of events like torch's."""
        return self.trace.events()

    def _start_sink(self, native: Sinks) -> str:
        self._recording.start(native, self._sink)
        return "capture"

    def _stop_sink(self, native: Sinks) -> None:
        super()._stop_sink(native)
        self._was_deleted = self._is_owner() and self._recording.is_gone()
        if self._was_deleted:
            self.stats = replace(self.stats, lost=max(self.stats.lost, self.stats.ranges))
        elif self.file is not None and self._is_owner():
            ranks.tell(self.file)
            if self.stats.ranges:
                unharmed.call("describing this process", process_facts.tell_after_ops, self.file)

    def _losses(self) -> list[str]:
        if not self._was_deleted:
            return super()._losses()
        return [f"{self.path} was deleted meanwhile, or the file in it: {self.stats.lost:,} events are lost"]

    def _step_is_over(self) -> None:
        if self._labelling is not None:
            self._labelling.native.capture_step(self._sink.number)

    def _in_fork(self) -> None:
        super()._in_fork()
        if self._dumping is not None:
            self._dumping.stop()

    def _inputs(self) -> int:
        return ALL_INPUTS

    def turn_devices(self, on: bool, activities: Iterable[ProfilerActivity]) -> None:
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
