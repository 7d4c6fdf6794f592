"""The sinks for labels, an entry each. All code that needs the list takes it from here; the native one is native/sinks.

This is data and imports nothing of ours: the module of its session and native/sinks say what a sink does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tool:
    """Somebody else's library that listens to a sink from inside of the labelled process."""

    command: str  # runs a program under it
    variable: str  # of the environment: names the library that listens. `opspan run` names opspan's collectors
    function: str  # a function that such a library has


@dataclass(frozen=True)
class Sink:
    number: int  # its place in this list, and in that of native/sinks/sinks.h
    name: str  # its name there and on the command line
    session: str  # "module:class" of the session that labels for it
    forms: tuple[str, ...]  # the values of labels=
    tool: Tool | None = None  # None: opspan itself, which takes ranges while a session is on

    @property
    def bit(self) -> int:
        """The bit of this sink in the arguments of push, pop and mark."""
        return 1 << self.number


NVTX: Final = Sink(
    0,
    "nvtx",
    "opspan.emit.nvtx:emit_nvtx",
    ("auto", "schema", "payload", "text", "torch"),
    Tool("nsys profile -t cuda,nvtx -o report", "NVTX_INJECTION64_PATH", "InitializeInjectionNvtx2"),
)
ITT: Final = Sink(
    1,
    "itt",
    "opspan.emit.itt:emit_itt",
    ("auto", "task", "text", "torch"),
    Tool("vtune -collect hotspots -knob enable-user-tasks=true -r r000hs --", "INTEL_LIBITTNOTIFY64", "__itt_api_init"),
)
# One for each recording that can be on at the same time.
CAPTURES: Final = tuple(
    Sink(number, name, "opspan.emit.record:record", ("capture",))
    for number, name in enumerate(("capture", "capture 2", "capture 3", "capture 4"), start=2)
)

SINKS: Final = (NVTX, ITT, *CAPTURES)
TO_ALL: Final = (1 << len(SINKS)) - 1
IN_SESSION: Final = 1 << len(SINKS)  # times a sink's bit: to that sink only while its session labels
