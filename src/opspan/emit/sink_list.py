"""The list of the sinks, to which labels go. Native code has the same list in native/sinks/sinks.h.

This is only data, and imports no module of opspan. A sink is implemented in native/sinks, and in the module of its
session class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tool:
    """A profiler whose library is loaded into the labelled process and gets a sink's labels."""

    command: str  # the command that runs a program under the tool
    variable: str  # an environment variable that names the tool's library; `opspan run` puts opspan's collectors there
    function: str  # a function that such a library has


@dataclass(frozen=True)
class Sink:
    number: int  # its index in this list and in the list of native/sinks/sinks.h
    name: str  # its name in sinks.h and on the command line
    session: str  # "module:class" of the session that labels for it
    forms: tuple[str, ...]  # the forms of labels, by their names in the argument `labels`
    tool: Tool | None = None  # None if opspan itself takes the ranges

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
# One sink for each recording that can be on at the same time.
CAPTURES: Final = tuple(
    Sink(number, name, "opspan.emit.record:record", ("capture",))
    for number, name in enumerate(("capture", "capture 2", "capture 3", "capture 4"), start=2)
)

SINKS: Final = (NVTX, ITT, *CAPTURES)
TO_ALL: Final = (1 << len(SINKS)) - 1
# With `IN_SESSION << number` in addition to a sink's own bit, the sink gets a range only while its session labels.
IN_SESSION: Final = 1 << len(SINKS)
