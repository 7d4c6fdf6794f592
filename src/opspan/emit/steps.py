"""Marks training steps for a session.

With a schedule, an active step gets a range `ProfilerStep#N`, and labelling is turned on and off. Without a schedule,
each step gets only a mark at its end. A range would have to begin before it is known whether the program calls step()
at all, and the last range would include everything after the last step.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from opspan.emit import ranges
from opspan.emit.schedule import Schedule, is_active
from opspan.emit.sinks import KIND_STEP
from opspan.labels import END_OF_STEP


class Steps:
    """Counts steps and turns labelling on for the active ones. `over` is called between two steps."""

    def __init__(self, schedule: Schedule, turn: Callable[[bool], None], over: Callable[[], None]) -> None:
        self.number = 0
        self._schedule = schedule
        self._turn = turn
        self._over = over
        self._on = False
        self._pushed = False
        self._to = self._thread = 0

    def start(self, to: int) -> None:
        self._to = to
        self._thread = threading.get_ident()
        self._enter()

    def step(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("step() was called on another thread than the session was entered on")
        self._leave()
        self.number += 1
        self._over()
        self._enter()

    def stop(self) -> None:
        self._leave()
        if self._on:
            self._on = False
            self._turn(False)

    def _enter(self) -> None:
        on = is_active(self._schedule(self.number))
        if on != self._on:
            self._on = on
            self._turn(on)
        if on:
            ref = ranges.ref_of(f"ProfilerStep#{self.number}", kind=KIND_STEP)
            self._pushed = ranges.push(ref, self._to) >= 0

    def _leave(self) -> None:
        # A range can only be popped on its thread, and a range that is left open ends with its thread.
        if self._pushed and threading.get_ident() == self._thread:
            ranges.pop(self._to)
        self._pushed = False


class StepMarks:
    """Counts the steps of a session without a schedule, and marks the end of each step. Any thread may report an
    end."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def step(self, to: int, is_on: bool) -> None:
        number = next(self._numbers)
        if is_on:
            ranges.mark(ranges.ref_of(f"{END_OF_STEP}{number}", kind=KIND_STEP), to)
