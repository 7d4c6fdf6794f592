"""Labels the ops of a program that was not edited. Environment variables make each Python process start an emitter,
which sends labels of ops to a tool, when the process imports torch. `execute` runs the program in this process, and
`capturing` runs it in another process.

This module imports no large module, because every Python process under `opspan run --emit` imports it.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from opspan.app import run_notes
from opspan.emit.keep import REASONS as REASONS
from opspan.emit.keep import parse
from opspan.emit.sink_list import ITT, NVTX, SINKS
from opspan.emit.torch_import import when_torch_is_imported as when_torch_is_imported
from opspan.errors import OpspanError, UsageError
from opspan.printable import path_text

if TYPE_CHECKING:
    from opspan.emit.sessions import Session

SITE = Path(__file__).parent / "launch_site"  # the folder of the sitecustomize.py that Python processes run at start
TOOLS = {sink.name: sink.tool for sink in SINKS if sink.tool is not None}  # the values of --emit
_VARIABLE = "OPSPAN_EMIT"
_IDLE = "OPSPAN_IDLE"
_KEEP = "OPSPAN_KEEP"
_MAY_LACK = "the labels may not be complete"
_FLAGS = ("record_shapes", "modules", "compiled")  # fields of Emit that are also arguments of the emitters
_TOOL_VARIABLES = [tool.variable for tool in TOOLS.values()]


@dataclass(frozen=True)
class Emit:
    """Describes the emitter to start. `tool` is "nvtx" or "itt", or "auto" for the protocol of the attached tool."""

    tool: str = "auto"
    record_shapes: bool = False
    modules: bool = False
    compiled: bool = False

    def as_text(self) -> str:
        flags = (name for name in _FLAGS if getattr(self, name))
        return " ".join((self.tool, *flags))

    @classmethod
    def from_text(cls, text: str) -> Emit:
        tool, *flags = text.split()
        return cls(tool, *(name in flags for name in _FLAGS))


@dataclass(frozen=True)
class RollingOptions:
    """The arguments of emit/rolling.py, with which each process makes a rolling recording."""

    keep: tuple[str, ...]
    dump_to: str | None = None
    dump_on: tuple[str, ...] = ()
    shapes: bool = False
    modules: bool = False
    compiled: bool = False
    folder: str = ""

    def check(self) -> None:
        """Raises UsageError for wrong options, before anything runs."""
        parse(self.keep)
        if self.dump_on and self.dump_to is None:
            raise UsageError("--dump-on says when dumps are written: add --dump-to, the folder for them")


def environment(
    before: Mapping[str, str], collectors: Path, captures: Path, emit: Emit | None, notes: Path | None = None
) -> dict[str, str]:
    """Returns the environment for a captured program and its children. If `emit` is given, they write notes to the
    file `notes`."""
    after = {**before, **dict.fromkeys(_TOOL_VARIABLES, str(collectors)), "OPSPAN_CAPTURE_DIR": str(captures)}
    after.pop(_VARIABLE, None)
    if emit is not None:
        after[_VARIABLE] = emit.as_text()
        after |= _with_site(before, notes)
    return after


def idle_environment(before: Mapping[str, str], notes: Path | None = None) -> dict[str, str]:
    """Returns the environment for a program that waits for `opspan attach`, and for its children."""
    return {**before, _IDLE: "1", **_with_site(before, notes)}


def rolling_environment(
    before: Mapping[str, str], options: RollingOptions, folder: Path, notes: Path
) -> dict[str, str]:
    """Returns the environment for a program that makes a rolling recording in the folder, and for its children."""
    text = json.dumps(asdict(replace(options, folder=str(folder))))
    return {**before, _KEEP: text, **_with_site(before, notes)}


def _with_site(before: Mapping[str, str], notes: Path | None) -> dict[str, str]:
    """Returns environment variables that make each Python process run the code in `SITE`."""
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), before.get("PYTHONPATH")]))}
    return variables if notes is None else {**variables, run_notes.VARIABLE: str(notes)}


def other_tools(tool: str | None) -> Iterator[str]:
    """Yields notes about tools that compete to listen to a captured program. A note says which tool will listen."""
    # nsys is loaded into every program that it starts, and sets NVTX's environment variable again in each of them.
    if "NSYS_PROFILING_SESSION_ID" in os.environ or "libToolsInjection" in os.environ.get("LD_PRELOAD", ""):
        left = "NVTX goes to nsys" if tool == "nvtx" else "NVTX goes to nsys, opspan captures ITT alone"
        yield f"nsys already profiles this command: {left}. Use one of the two"
        return
    for name in _TOOL_VARIABLES:
        if os.environ.get(name):
            yield f"{name}={os.environ[name]} is set: another tool wants to listen, opspan goes first"


def start_from_environment() -> None:
    """Starts what the environment asks for. The sitecustomize.py in `SITE` calls this function."""
    if labels := os.environ.get(_VARIABLE):
        _for_torch(lambda: start(Emit.from_text(labels)), "this process is not labelled")
    if options := os.environ.get(_KEEP):
        _for_torch(lambda: _keep(RollingOptions(**json.loads(options))), "this process is not recorded")
    if os.environ.get(_IDLE):
        _for_torch(_listen, "nobody can attach to this process")


def _for_torch(act: Callable[[], object], lost: str) -> None:
    """Calls `act` when torch is imported. If `act` fails, prints `lost`, a sentence about what will not work."""
    acts = _unharmed(act, lost)

    def noted() -> None:
        run_notes.note("torch")
        acts()

    when_torch_is_imported(noted)


def start(emit: Emit) -> None:
    """Starts the emitter. It labels ops until this process ends, also in non-daemon threads and atexit functions."""
    from opspan.emit import notices, ranges, sinks

    notices.put_in()
    listening = ranges.listening()
    if emit.compiled and not listening:
        _write_compile_log_at_exit()
    chosen = [sink for sink in SINKS if sink.name == emit.tool]
    if emit.tool == "auto":
        # If one library listens to both NVTX and ITT, only the session that begins last labels ops. So NVTX begins
        # last. If no tool listens, only NVTX is chosen: emit_nvtx then warns once that no tool listens.
        chosen = [sink for sink in reversed(SINKS) if sink.tool is not None and listening & sink.bit] or [NVTX]
        native = sinks.load()
        if {ITT, NVTX} <= set(chosen) and native is not None and native.one_tool():
            chosen.remove(ITT)  # one library gets both protocols, so the labels through ITT would only cost time
    for sink in chosen:
        module, _, name = sink.session.partition(":")
        kind = getattr(importlib.import_module(module), name)
        session: Session = kind(**{name: getattr(emit, name) for name in _FLAGS})
        session.gives_way = session.in_each_process = session.covers_start = True
        session.__enter__()
        atexit.register(_unharmed(session.__exit__, _MAY_LACK))


def _write_compile_log_at_exit() -> None:
    """Writes torch.compile's log to a file at the end of a process to which no tool listens."""
    from opspan.emit import compile_log, notices

    file, pid = Path(f"opspan-compiled-{os.getpid()}.log").absolute(), os.getpid()

    def write() -> None:
        if os.getpid() == pid and compile_log.write(file):
            notices.warn_at_end(f"wrote torch.compile's log to {path_text(file)}: --compiled reads it", stacklevel=2)

    compile_log.start()
    atexit.register(_unharmed(write, "torch.compile's log is not written"))


def _keep(options: RollingOptions) -> None:
    from opspan.emit import notices
    from opspan.emit.rolling import Rolling

    notices.put_in()
    rolling = Rolling(**asdict(options))
    rolling.start()
    atexit.register(_unharmed(rolling.end, _MAY_LACK))


def _listen() -> None:
    from opspan.emit.listening import listen

    listen()


def _unharmed(act: Callable[[], object], lost: str) -> Callable[[], None]:
    """Returns a function that calls `act`, and prints any error as a sentence instead of raising it. So an error of
    opspan does not stop the program."""

    def acts() -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  the program is what matters here
            from opspan.emit import notices

            run_notes.note("failed", why(error))
            notices.say(f"opspan: {lost}: {why(error)}\n")

    return acts


def why(error: Exception) -> str:
    """Returns the error as one line. If it is not an OpspanError, adds its class and refers to `opspan doctor`."""
    if isinstance(error, OpspanError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' * bool(text)}{text}. `opspan doctor` says what works here"
