"""The options of a made training run (training.py), and the rows that it has. Nothing here depends on a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

MAIN, BACKWARD = 0, 90  # threads, beyond the process' number
COMPUTE, COMMUNICATION = 7, 20  # streams
STREAMS = 100_000  # each device has so many: 200_007 is stream 7 of device 2
MULTIPROCESSORS = 132


@dataclass(frozen=True)
class Plan:
    """The options of a run. By default it is healthy: its device is busy for nine tenths of the time."""

    ranks: int = 1
    steps: int = 8
    layers: int = 4
    seed: int = 0
    noise: float = 0.01  # usual deviation of each time, of the host's and of the device's
    straggler: tuple[int, float] | None = None  # a rank, and how many times longer its device computes
    slower_ranks: Mapping[int, float] = field(default_factory=dict)  # the same for several
    stalls: Mapping[int, int] = field(default_factory=dict)  # step -> ns in which the host does nothing
    stalled_ranks: tuple[int, ...] = ()  # the ranks that stall; empty: all
    slow_loader: int = 0  # ns that each batch takes longer
    slower: Mapping[str, float] = field(default_factory=dict)  # op -> how many times longer its kernels take
    item_per_step: bool = False  # the loss is fetched: the host waits for the device
    pageable: bool = False  # batches lie in pageable memory: their copies block
    round_trips: int = 0  # tensors a step that go to the host and come back
    fallbacks: int = 0  # ops a step that run on the host in between
    small_collectives: bool = False  # one for each parameter instead of a few buckets
    exposed: bool = False  # collectives begin after the backward
    launch_bound: bool = False  # kernels are shorter than their launches
    fp32: bool = False  # without tensor cores
    odd: bool = False  # sizes that are no multiples of 8
    few_blocks: bool = False  # kernels leave most multiprocessors alone
    loop_optimizer: bool = False  # an op for each parameter
    recompiles: tuple[int, ...] = ()  # steps in which torch.compile compiles again
    apart: Mapping[int, int] = field(default_factory=dict)  # rank -> ns that its clock is ahead
    cut: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # rank -> the first and the last step in its file
    no_device: bool = False
    no_steps: bool = False
    no_sizes: bool = False


class Range(NamedTuple):
    rank: int
    tid: int
    start: int
    end: int
    kind: str  # op, user, module
    name: str
    seq: int | None
    is_backward: bool
    sizes: str | None
    types: str | None
    number: int
    parent: int | None = None  # the number of the caller of a module or function
    forward_tid: int = MAIN  # the thread of a backward range's forward range


class Call(NamedTuple):
    rank: int
    tid: int
    start: int
    end: int
    name: str
    correlation: int


class Work(NamedTuple):
    rank: int
    start: int
    end: int
    kind: str  # kernel, memcpy
    name: str
    stream: int
    correlation: int
    blocks: int
    bytes: int
    sides: tuple[str, str] | None  # source and target of a copy
    collective: int  # elements of one; 0: it is none
    group: tuple[int, ...] = ()  # the ranks that meet in it; none: all of them; of a send: from whom to whom


class Moment(NamedTuple):
    """Memory of the device that was taken or, with a size below 0, given back; and what the allocator holds then."""

    rank: int
    tid: int
    at: int
    bytes: int
    address: int
    allocated: int
    reserved: int


class Run(NamedTuple):
    plan: OfRun
    ranges: list[Range]
    calls: list[Call]
    work: list[Work]
    memory: Sequence[Moment] = ()

    def of(self, rank: int) -> Run:
        return Run(self.plan, *([row for row in rows if row.rank == rank] for rows in self[1:]))  # type: ignore[misc]


def pid_of(rank: int) -> int:
    return 5000 + 100 * rank


class OfRun(Protocol):
    """Facts about a whole run that its files need; a Plan and a Job (job.py) have them."""

    @property
    def ranks(self) -> int: ...
    @property
    def fp32(self) -> bool: ...


def collective_args(plan: OfRun, work: Work) -> dict[str, Any]:
    """Returns torch.profiler's metadata of the kernel of a collective. "Rank" is the peer of a send or a receive, which
    has only the other end."""
    elements, group = work.collective, work.group or tuple(range(plan.ranks))
    said: dict[str, Any] = {"Collective name": "allreduce", "Rank": group.index(work.rank)}
    if "SendRecv" in work.name:
        source, target = group
        group = tuple(range(plan.ranks))
        said = {"Collective name": "send", "Rank": target, "Dst Rank": target}
        if work.rank == target:
            said = {"Collective name": "recv", "Rank": source, "Src Rank": source}
    return said | {
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": len(group),
        "dtype": "Float" if plan.fp32 else "BFloat16",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(group)),
    }
