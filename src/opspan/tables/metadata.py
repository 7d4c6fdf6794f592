"""Metadata says where one rank of a trace came from, and how it was recorded. Told is the rank number that a trace
states about itself. Readers fill both, and ranks.py uses both to choose the final rank number. A trace may contain
environment variables that state its rank:

RANK=3 WORLD_SIZE=8 LOCAL_RANK=3 TORCHELASTIC_RUN_ID=1f2e    set by torchrun
OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8                set by Open MPI's mpirun; other MPIs set PMI_RANK
SLURM_PROCID=3 SLURM_NTASKS=8                                set by srun
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opspan.printable import as_utf8

MICROARCHITECTURE = "microarchitecture"  # key in `options`: the processor's microarchitecture in the tool's words
ORDER, NAME = "order", "name"  # values of `rank_by` if the rank comes from the order or the names of the files
MOST_RANKS = 2**24  # a number this large is damaged, or is not a rank


# Options of captures that state facts about processes. Each is a dict by process id: the number of threads on which
# torch ran an op when the recording ended; how many processors the process may use at a time, and their numbers, such
# as "0-3,8"; its age when the recording began; and its age when it began and ended to import torch.
FACTS = TORCH_THREADS, USABLE_PROCESSORS, PROCESSOR_LIST, PROCESS_AGE, TORCH_IMPORT = (
    *("torch_threads", "usable_processors", "processor_list"),
    *("process_age_ns", "torch_import_ns"),
)


@dataclass(frozen=True)
class Told:
    """The rank that a trace states about itself. `rank` is None if the trace states none. If both are known,
    `rank` is less than `world_size`."""

    rank: int | None = None
    # The part of the trace that states the rank: "RANK" (a variable), "distributedInfo", "MPI_RANKS", "NCCL
    # communicator 0x...".
    by: str | None = None
    world_size: int | None = None
    local_rank: int | None = None  # the rank among the processes on the same host
    run: str | None = None  # the launcher, and a name that all ranks of a run share, as in `torchrun 1f2e`


NOTHING = Told()


@dataclass(frozen=True)
class Metadata:
    """The origin of one rank of a trace: a file, a folder of files that belong together, or the files of a process.

    Attributes:
        source: name of the reader.
        paths: the files.
        tool: the tool that recorded the trace.
        tool_version: the tool's version.
        host: the machine that the program ran on.
        clock: the clock that times were read from.
        origin_utc_ns: UTC time of the clock's zero, in ns since 1970.
        options: how the trace was recorded; JSON values only.
        rank: the rank's number in the column `rank` of all tables.
        rank_by: how that number was found (docs/ranks.md).
        told: the rank that the trace itself states.
        cycle: number of the cycle, from 1, if the process wrote several files.
        cycles: one Metadata for each cycle, if the rank has several files.
    """

    source: str
    paths: tuple[str, ...] = ()
    tool: str | None = None
    tool_version: str | None = None
    host: str | None = None
    clock: str | None = None
    origin_utc_ns: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0
    rank_by: str = ORDER
    told: Told = NOTHING
    cycle: int | None = None
    cycles: tuple[Metadata, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(as_utf8, self.paths)))


# --- what a trace states about its rank


def told(by: str, rank: object, world_size: object = None, local_rank: object = None, run: str | None = None) -> Told:
    """Returns a Told without the numbers that are impossible. A file may contain any numbers."""
    size, number, local = _count(world_size), _count(rank), _count(local_rank)
    size = size or None
    if number is not None and size is not None and number >= size:
        number = size = None
    return Told(number, by if number is not None else None, size, local, run)


def _count(value: object) -> int | None:
    if isinstance(value, str):
        value = int(value) if re.fullmatch("[0-9]{1,8}", value) else None
    return value if type(value) is int and 0 <= value < MOST_RANKS else None


# Names of the variables for the rank, the world size and the rank on the host. The first line whose variables are set
# is used. If Slurm or MPI started torchrun, their numbers are those of hosts, so torchrun comes before them.
_LAUNCHERS = (
    # TORCH_RANK and TORCH_WORLD_SIZE stand for values of torch.distributed, which are more reliable than variables.
    ("TORCH_RANK", "TORCH_WORLD_SIZE", "LOCAL_RANK"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
# Variables that all ranks of a run share. MASTER_ADDR is not used, because one host may have several names.
_RUNS = (("torchrun", "TORCHELASTIC_RUN_ID"), ("MPI", "PMIX_NAMESPACE"), ("port", "MASTER_PORT"))
VARIABLES = frozenset(
    {name for names in _LAUNCHERS for name in names} | {name for _, name in _RUNS} | {"SLURM_JOB_ID", "SLURM_STEP_ID"}
)


def from_environment(variables: Mapping[str, str]) -> Told:
    """Returns the rank that a launcher gave to a process in environment variables. A world size of 1 is ignored,
    because the process may have started other ranks itself. A rank without a world size is ignored, too, because a
    variable with a name as common as RANK may mean anything."""
    for rank, size, local in _LAUNCHERS:
        process = told(rank, variables.get(rank), variables.get(size), variables.get(local), _run(variables))
        if process.rank is not None and (process.world_size or 0) > 1:
            return process
    return Told(run=_run(variables))


def _run(variables: Mapping[str, str]) -> str | None:
    for who, name in _RUNS:
        value = variables.get(name)
        if value and value != "none":  # torchrun sets "none" if the run has no name
            return f"{who} {value}"
    if job := variables.get("SLURM_JOB_ID"):
        return f"Slurm {job}.{variables.get('SLURM_STEP_ID') or ''}"
    return None


def from_distributed(info: Any) -> Told:
    """Returns the rank in torch.profiler's `distributedInfo`, which may have any content."""
    if not isinstance(info, Mapping):
        return NOTHING
    return told("distributedInfo", info.get("rank"), info.get("world_size"))


def from_json(saved: Any) -> Told:
    """Returns the rank in a saved trace, which may have any content."""
    if not isinstance(saved, Mapping):
        return NOTHING
    by, run = saved.get("by"), saved.get("run")
    by, run = by if isinstance(by, str) else "", run if isinstance(run, str) else None
    return told(by, saved.get("rank"), saved.get("world_size"), saved.get("local_rank"), run)
