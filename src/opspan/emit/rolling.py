"""A rolling recording of an unedited program, from the import of torch until the process ends. A rolling recording
keeps only its last part.

A step lasts from one report of a step's end (`step_ends`) to the next. Only reports from the same source and thread as
the first report are counted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence

from opspan.emit import notices, ranges
from opspan.emit.counting import begin_step
from opspan.emit.keep import EXCEPTION
from opspan.emit.record import record
from opspan.emit.schedule import ProfilerAction
from opspan.emit.step_ends import set_counter, watch_optimizers


class Rolling:
    def __init__(
        self,
        folder: str,
        keep: Sequence[str],
        dump_to: str | None,
        dump_on: Sequence[str],
        shapes: bool,
        modules: bool,
        compiled: bool,
    ) -> None:
        self._recording = record(
            folder,
            shapes,
            add=True,  # processes share the folder. The command has checked that it was empty
            modules=modules,
            compiled=compiled,
            schedule=lambda _: ProfilerAction.NONE,  # this class turns labelling on and counts steps
            keep=keep,
            dump_to=dump_to,
            dump_on=dump_on or (EXCEPTION,),
        )
        self._recording.gives_way = True
        self._counting = contextlib.ExitStack()
        self._by: tuple[int, int] | None = None
        self._steps = 0
        self._range = 0
        self._pid = os.getpid()

    def start(self) -> None:
        self._recording.__enter__()
        self._recording.turn(True)
        self._range = begin_step(self._recording, self._steps)
        watch_optimizers()
        self._counting.enter_context(set_counter(self._step_is_over))

    def end(self) -> None:
        """Ends the recording when the program ends. An exception that ended the program is a reason for a dump."""
        if os.getpid() != self._pid:
            return
        self._counting.close()
        ranges.range_end(self._range)
        error = getattr(sys, "last_value", None)  # the exception that ended the program, if any
        self._recording.__exit__(type(error) if error is not None else None, error, None)

    def _step_is_over(self, by: int) -> None:
        """Runs on a thread of the program, so it must not raise."""
        source = by, threading.get_ident()
        self._by = self._by or source
        if source != self._by or os.getpid() != self._pid or not self._recording._is_running():
            return
        try:
            ranges.range_end(self._range)
            self._steps += 1
            self._recording._step_was_counted()
            self._range = begin_step(self._recording, self._steps)
        except Exception as error:  # noqa: BLE001
            self._by = (-1, 0)  # no source has this id, so no more steps are counted
            notices.warn_at_end(f"steps are not counted any more: {type(error).__name__}: {error}", stacklevel=2)
