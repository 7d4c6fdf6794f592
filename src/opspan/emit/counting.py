"""Records the requested count of complete training steps. A step lasts from one report of a step's end to the next.

`step_ends` passes the reports on. A report comes from the program or from one of its optimizers. Only reports from the
same source and thread as the first report are counted.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from opspan.emit import notices, ranges, step_ends
from opspan.emit.record import record
from opspan.emit.sinks import KIND_STEP


def begin_step(recording: record, number: int) -> int:
    """Begins the range of a step and returns the range's id for `ranges.range_end`. The range is not on the thread's
    stack: the optimizer's range is open at this moment, and ends before the step does."""
    return ranges.range_start(ranges.ref_of(f"ProfilerStep#{number}", kind=KIND_STEP), recording._sink.bit)


class StepCount:
    """Counts the steps of `recording`, which was entered but does not label yet. Calls `done` after the last step, or
    when no more steps can come."""

    def __init__(self, recording: record, steps: int, notes: list[str], done: Callable[[], None]) -> None:
        self.recorded = 0
        self.begun = False
        self.failed: Exception | None = None
        self._recording = recording
        self._steps = steps
        self._notes = notes
        self._done = done
        self._is_over = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._by = -1
        self._thread = 0
        self._range = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        with step_ends.set_counter(self._step_is_over):
            try:
                yield
            finally:
                with self._lock:
                    self._is_over = True

    def _step_is_over(self, by: int) -> None:
        """Runs on a thread of the program, so it must not raise."""
        if self._is_over or os.getpid() != self._pid:
            return
        with self._lock:
            try:
                with notices.collect(self._notes):
                    self._count(by)
            except Exception as error:  # noqa: BLE001
                self.failed = error
                self._end()

    def _count(self, by: int) -> None:
        if self._is_over:  # another thread ended the counting while this thread waited for the lock
            return
        if not self._recording._is_running():  # the program has ended the recording
            self._end()
        elif self.begun:
            if by == self._by and threading.get_ident() == self._thread:
                self._next()
        else:
            self.begun, self._by, self._thread = True, by, threading.get_ident()
            self._recording.turn(True)
            self._range = begin_step(self._recording, self.recorded)

    def _next(self) -> None:
        ranges.range_end(self._range)
        self.recorded += 1
        if self.recorded < self._steps:
            self._range = begin_step(self._recording, self.recorded)
        else:
            self._recording.turn(False)
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._done()
