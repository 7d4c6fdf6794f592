"""emit_pyroscope: labels the samples of a running pyroscope-io agent with the phase, the module and the step.

emit_pyroscope labels threads, not ops. So it needs neither the observer nor a sink, and is not a Session. In
`changes.active` it has a number that no sink has.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opspan.emit import module_tags, modules, notices, phase_tags, ranges, thread_tags, unharmed
from opspan.emit.changes import active, change
from opspan.emit.compiled import compiling, skip_functions_of
from opspan.emit.module_tags import ModuleTags
from opspan.emit.thread_tags import MOST_VALUES, OTHER, ThreadTags
from opspan.errors import AlreadyActive, UsageError
from opspan.labels import PYROSCOPE_RUN
from opspan.printable import printable

BY: Final = ("phase", "module", "step")
RUN: Final = "run_id"
MOST_TAGS: Final = 10
LONGEST: Final = 200  # the most characters in a tag's value

_NUMBER: Final = -1
_KEY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = (*BY, RUN, "service_name")
_NOT_RUNNING = (
    "emit_pyroscope labels nothing: no pyroscope-io agent runs in this process. Start one before: "
    "pyroscope.configure(application_name=..., server_address=..., gil_only=False)"
)
_warned = False


class emit_pyroscope:  # noqa: N801  # stands beside emit_nvtx and emit_itt
    """Add labels to the samples of a pyroscope-io agent: `run_id`, and the phase, module and step of the moment.

    It is a context manager. Start the agent first, by `pyroscope.configure(..., gil_only=False)`. Once a label has had
    100 values, it gets "other" for each new value. All labels are removed at the end.

    Args:
        tags: labels of your own.
        by: "phase" is forward, backward, optimizer or data. "module" is the qualified name of the module that runs, in
            forward and in backward. "step" is the training step, in ranges that double (8-15, 16-31, ...). For "step",
            call `step()` after each step.
        enabled: if False, nothing is labelled.
    """

    def __init__(self, tags: Mapping[str, str] | None = None, by: Iterable[str] = BY, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.entered = False
        self.run_id = secrets.token_hex(6)
        self.by = _check_by(by)
        self.tags = _check_tags(tags or {})
        self._step = 0
        self._thread_tags: ThreadTags | None = None  # set while this session is on and an agent runs
        self._listened = 0  # the sinks that have got the run's id, as bits
        self._owner = 0
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> emit_pyroscope:
        if not self.enabled or compiling():
            return self
        if self.entered:
            raise RuntimeError("emit_pyroscope context manager is not reentrant")
        self.entered = True
        with change():
            if _NUMBER in active:
                raise AlreadyActive("emit_pyroscope is already active in this process: one at a time, for all threads")
            self._owner = os.getpid()
            try:
                self._start()
            except BaseException:
                self._undo.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if compiling() or self._thread_tags is None or self._owner != os.getpid():
            return
        tags, self._thread_tags = self._thread_tags, None
        try:
            with change():
                self._undo.close()
        except Exception as error:  # noqa: BLE001  # an error of ours must not reach the program
            notices.warn_at_end(f"emit_pyroscope is off, but not all of its end went well: {error!r}", stacklevel=2)
        unharmed.say("emit_pyroscope", stacklevel=2)
        if tags.too_many:
            notices.warn_at_end(
                f"emit_pyroscope: more than {MOST_VALUES} values of {', '.join(sorted(tags.too_many))}; those past "
                f"these are labelled {OTHER!r}",
                stacklevel=2,
            )

    def step(self) -> None:
        """Say that a training step is over."""
        if self._thread_tags is not None and not compiling():
            self._step += 1
            unharmed.call("labelling steps", self._label_step, self._thread_tags)

    def _label_step(self, tags: ThreadTags) -> None:
        if "step" in self.by and (step := step_range(self._step)) != tags.base["step"]:
            tags.base["step"] = step
            tags.change({"step": step})
        self._name_run()

    def _start(self) -> None:
        global _warned
        base = {RUN: self.run_id, **self.tags}
        if "step" in self.by:
            base["step"] = step_range(0)
        tags = thread_tags.start(base)
        if tags is None:
            if not _warned:
                _warned = True
                notices.warn(_NOT_RUNNING, stacklevel=4)
            return
        active[_NUMBER] = self
        self._undo.callback(active.pop, _NUMBER, None)
        self._thread_tags = tags
        if "phase" in self.by or "module" in self.by:
            skip_functions_of(module_tags, thread_tags)
            watcher = ModuleTags(tags, named="module" in self.by, forward="phase" in self.by)
            self._undo.callback(modules.unwatch)
            self._undo.callback(tags.cut, 0)
            self._undo.callback(watcher.end)
            modules.watch(watcher)
            self._undo.enter_context(phase_tags.start(tags, named="phase" in self.by))
        else:
            self._undo.callback(tags.cut, 0)
        tags.push({})
        self._name_run()

    def _name_run(self) -> None:
        """Sends the run's id once to each listening tool and recording, so that their traces can be matched with the
        samples that have this id."""
        listening = ranges.listening()
        if listening & ~self._listened:
            ranges.mark(ranges.ref_of(f"{PYROSCOPE_RUN}{self.run_id}"), listening & ~self._listened)
        self._listened = listening

    def _is_owner(self) -> bool:
        return self._owner == os.getpid()

    def _in_fork(self) -> None:
        if self._thread_tags is not None:
            self._thread_tags.forget()


def step_range(step: int) -> str:
    """Returns the range that contains the step: 0, 1, 2-3, 4-7, 8-15 and so on. So the number of ranges stays small."""
    first = 1 << step.bit_length() - 1 if step else 0
    return str(step) if step < 2 else f"{first}-{2 * first - 1}"


def _check_by(by: Iterable[str]) -> tuple[str, ...]:
    labels = (by,) if isinstance(by, str) else tuple(by)
    if unknown := [name for name in labels if name not in BY]:
        raise UsageError(f"emit_pyroscope(by=...): {unknown[0]!r} is none of {', '.join(BY)}")
    return labels


def _check_tags(tags: Mapping[Any, Any]) -> dict[str, str]:
    if len(tags) > MOST_TAGS:
        raise UsageError(f"emit_pyroscope(tags=...) takes up to {MOST_TAGS} tags, not {len(tags)}")
    for key, value in tags.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key.startswith("__") or key in _RESERVED:
            raise UsageError(
                f"emit_pyroscope(tags=...): {key!r} cannot be the name of a label: letters, digits and _ can, but for "
                f"{', '.join(_RESERVED)} and what begins with __"
            )
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST or printable(value) != value:
            raise UsageError(
                f"emit_pyroscope(tags=...): the value of {key} must be printable text of 1 to {LONGEST} characters, "
                f"not {value!r:.100}"
            )
    return dict(tags)
