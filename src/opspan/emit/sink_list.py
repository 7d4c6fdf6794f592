"""Where labels can go: one entry a sink. All that has to know which sinks there are asks here, natively native/sinks.

This is data and imports nothing of ours: what a sink does stands in its session's module and in native/sinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tool:
    """What listens to a sink from inside of the labelled process, and is somebody else's."""

    command: str  # runs a program under it
    variable: str  # of the environment: names the library that listens. `opspan run` names opspan's collectors
    function: str  # that such a library has


@dataclass(frozen=True)
class Sink:
    number: int  # its place in this list, and in that of native/sinks/sinks.h
    name: str  # there, and on the command line
    session: str  # "module:class" of what labels for it
    forms: tuple[str, ...]  # that labels= may ask for
    tool: Tool | None = None  # None: opspan itself, which takes ranges while a session is on

    @property
    def bit(self) -> int:
        """In what push, pop and mark take."""
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
