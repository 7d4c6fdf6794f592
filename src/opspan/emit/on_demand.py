"""Begins and ends a recording that another process asks for, and collects notes about this recording.

If steps are recorded, the program's thread only counts them, makes their ranges, and turns labelling on and off. All
other work is done on opspan's own thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Iterator

from opspan.emit import notices
from opspan.emit.asking import Reply, Request
from opspan.emit.counting import StepCount
from opspan.emit.record import record
from opspan.emit.schedule import ProfilerAction
from opspan.errors import EmitError

# Seconds to wait after the last step. The step ends inside of the optimizer's range, which can end while the recording
# waits, although labelling is off.
_LINGER_SECONDS = 0.02


class Bell:
    """Wakes another thread that waits."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def wait(self, connection: socket.socket, seconds: float) -> None:
        """Waits until the bell rings, until the other side sends something or closes, or until the time is over."""
        poll = select.poll()  # unlike select it takes descriptors above 1023
        poll.register(self._descriptor, select.POLLIN)
        poll.register(connection, select.POLLIN)
        poll.poll(seconds * 1000)

    def close(self) -> None:
        os.close(self._descriptor)


def record_for(request: Request, connection: socket.socket, bell: Bell) -> Reply:
    """Records until the request is fulfilled, its time is over, or the requester closes the connection."""
    if "torch" not in sys.modules:
        raise EmitError("that process has not imported torch: there are no ops to record")
    notes: list[str] = []
    recording = record(
        request.folder,
        request.shapes,
        add=True,  # ranks share the folder, and begin at different times. `opspan attach` has checked that it was empty
        memory=request.memory,
        stacks=request.stacks,
        modules=request.modules,
        device=request.devices and _uses_devices(),
        schedule=lambda _: ProfilerAction.NONE,  # this module turns labelling on and off
    )
    recording.gives_way = True
    count = StepCount(recording, request.steps, notes, bell.ring)
    with _entered(recording, notes):
        began = time.monotonic()
        if request.steps:
            with count.counting():
                bell.wait(connection, request.seconds)
            time.sleep(_LINGER_SECONDS)
        else:
            with notices.collect(notes):
                recording.turn(True)
            bell.wait(connection, request.seconds)
        was_ended = not recording._is_running()
        seconds = time.monotonic() - began
    if was_ended:
        notes.append("the program began a recording of its own and there was no room for more: this one gave way to it")
    if request.steps and count.recorded < request.steps:
        _note_missing_steps(recording, count, seconds, notes)
    return Reply(str(recording.file), count.recorded, recording.stats.ranges, notes)


def _note_missing_steps(recording: record, count: StepCount, seconds: float, notes: list[str]) -> None:
    if count.failed is not None:
        notes.append(f"the steps could not be recorded: {type(count.failed).__name__}: {count.failed}")
    if not count.begun:
        recording._discard()
        no_step = f"no step began in {seconds:.1f} s, neither of an optimizer nor by a step() of opspan's"
        why = notes[-1] if notes else no_step
        raise EmitError(f"nothing was recorded: {why}; --seconds 5 without --steps records 5 s of whatever runs")
    notes.append(f"ended after {seconds:.1f} s with {count.recorded} whole steps")


@contextlib.contextmanager
def _entered(recording: record, notes: list[str]) -> Iterator[None]:
    with notices.collect(notes):
        recording.__enter__()
    try:
        yield
    finally:
        with notices.collect(notes):
            recording.__exit__()


def _uses_devices() -> bool:
    """Returns whether the program uses devices. Asking must not start one."""
    import torch

    return bool(torch.cuda.is_initialized() or torch.xpu.is_initialized())
