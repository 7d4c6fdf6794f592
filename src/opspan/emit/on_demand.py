"""A recording that somebody asked for from outside of this process: begun, ended, and what there is to say of it.

All that can wait is done on a thread of our own. The program's thread does no more than what turns labelling on and
off, between two of its steps.
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
from opspan.emit.asking import Answer, Asked
from opspan.emit.counting import StepCount
from opspan.emit.record import record
from opspan.emit.schedule import ProfilerAction
from opspan.errors import EmitError

# Until the optimizer's range ends in which the last step did: labelling is off by then, what has begun still ends.
_LINGER_SECONDS = 0.02


class Bell:
    """Ends the waiting of another thread."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def wait(self, connection: socket.socket, seconds: float) -> None:
        """Until it rings, or who is at the other end has something to say, as that it is gone."""
        poll = select.poll()  # unlike select it takes descriptors of any number
        poll.register(self._descriptor, select.POLLIN)
        poll.register(connection, select.POLLIN)
        poll.poll(seconds * 1000)

    def close(self) -> None:
        os.close(self._descriptor)


def record_for(asked: Asked, connection: socket.socket, bell: Bell) -> Answer:
    """Until all is recorded that was asked for, its time is over, or who asked closes the connection."""
    if "torch" not in sys.modules:
        raise EmitError("that process has not imported torch: there are no ops to record")
    notes: list[str] = []
    recording = record(
        asked.folder,
        asked.shapes,
        add=True,  # ranks share it, and one may begin when another has ended; who asked has seen that it is empty
        memory=asked.memory,
        stacks=asked.stacks,
        modules=asked.modules,
        device=asked.devices and _uses_devices(),
        schedule=lambda _: ProfilerAction.NONE,  # turned on and off here
    )
    recording.gives_way = True
    count = StepCount(recording, asked.steps, notes, bell.ring)
    with _entered(recording, notes):
        began = time.monotonic()
        if asked.steps:
            with count.counting():
                bell.wait(connection, asked.seconds)
            time.sleep(_LINGER_SECONDS)
        else:
            with notices.collected(notes):
                recording.turn(True)
            bell.wait(connection, asked.seconds)
        was_ended = not recording._is_running()
        seconds = time.monotonic() - began
    if was_ended:
        notes.append("the program began a recording of its own and there was no room for more: this one gave way to it")
    if asked.steps and count.recorded < asked.steps:
        _said_too_few_steps(recording, count, seconds, notes)
    return Answer(str(recording.file), count.recorded, recording.stats.ranges, notes)


def _said_too_few_steps(recording: record, count: StepCount, seconds: float, notes: list[str]) -> None:
    if count.failed is not None:
        notes.append(f"the steps could not be recorded: {type(count.failed).__name__}: {count.failed}")
    if not count.begun:
        recording._discard()
        why = (
            notes[-1]
            if notes
            else f"no step began in {seconds:.1f} s, neither of an optimizer nor by a step() of opspan's"
        )
        raise EmitError(f"nothing was recorded: {why}; --seconds 5 without --steps records 5 s of whatever runs")
    notes.append(f"ended after {seconds:.1f} s with {count.recorded} whole steps")


@contextlib.contextmanager
def _entered(recording: record, notes: list[str]) -> Iterator[None]:
    with notices.collected(notes):
        recording.__enter__()
    try:
        yield
    finally:
        with notices.collected(notes):
            recording.__exit__()


def _uses_devices() -> bool:
    """It must not be us who starts one."""
    import torch

    return bool(torch.cuda.is_initialized() or torch.xpu.is_initialized())
