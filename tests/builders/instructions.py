"""Instructions of the programs that the machine (machine.py) runs. They have durations, but no times."""

from __future__ import annotations

from dataclasses import dataclass, field

from builders.training_plan import COMPUTE, MAIN

Group = tuple[int, ...]


@dataclass(slots=True)
class Host:
    """The thread computes for so long. `tag` says what for: what changes a program finds it by this."""

    ns: int
    tag: str = "host"


@dataclass(slots=True)
class Begin:
    """A range begins; `End` ends the innermost one."""

    name: str
    kind: str = "op"
    seq: int | None = None
    is_backward: bool = False
    sizes: str | None = None
    types: str | None = None
    forward_tid: int = MAIN


@dataclass(slots=True)
class End:
    pass


@dataclass(slots=True)
class Thread:
    """The following instructions run on the thread of this number."""

    tid: int


@dataclass(slots=True)
class Kernel:
    """Work of a device. `group`: the ranks that meet in it, or devices of one process; then `ns` is what it takes once
    all are there. Of a send and its receive: from whom to whom."""

    ns: int
    name: str
    stream: int = COMPUTE
    kind: str = "kernel"
    blocks: int = 1024
    bytes: int = 0
    sides: tuple[str, str] | None = None
    group: Group = ()
    elements: int = 0
    tag: str = ""


@dataclass(slots=True)
class Launch:
    """A call that gives work to a stream. `waits`: it returns when the work has ended, as copies of pageable memory."""

    work: list[Kernel]
    ns: int = 6_000
    call: str = "cudaLaunchKernel"
    waits: bool = False
    tag: str = "launch"


@dataclass(slots=True)
class Sync:
    """A call that waits for all that streams were given; `streams` is empty: for those of the whole device."""

    call: str = "cudaDeviceSynchronize"
    ns: int = 2_000
    streams: tuple[int, ...] = ()
    tag: str = "synchronise"


@dataclass(slots=True)
class Driver:
    """A call that gives no work."""

    name: str
    ns: int
    tag: str = "call"


@dataclass(slots=True)
class Overhead:
    """The profiler keeps the thread for so long, and says so."""

    ns: int
    name: str = "Activity Buffer Request"


@dataclass(slots=True)
class Order:
    """A stream is told to wait for what another one was given until now."""

    stream: int
    after: int


@dataclass(slots=True)
class Put:
    """Tells the other threads of the rank that something is there; `Take` waits for it."""

    flag: str


@dataclass(slots=True)
class Take:
    flag: str


@dataclass(slots=True)
class Meet:
    """The host itself waits until all ranks of the group are there, and for `ns` more: a collective of gloo."""

    group: Group
    ns: int


@dataclass(slots=True)
class Memory:
    """Memory of the device is taken or, with a size below 0, given back to torch's allocator."""

    bytes: int


Instruction = Host | Begin | End | Thread | Launch | Sync | Driver | Overhead | Order | Put | Take | Meet | Memory


@dataclass
class Program:
    """The program of a rank. `workers` are threads beside the main one; `Thread` gives them a number before they
    call."""

    main: list[Instruction]
    workers: list[list[Instruction]] = field(default_factory=list)
