"""The job that runs on the machine (machine.py): its model, its ranks, and its faults.

By default it is a training loop without a fault. job_program.py writes it as programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class Extra:
    """The host does something more, at a place of a step: load, begin, layer, backward, optimizer, end.
    `kind` is that of its range: user, op, function; without a name it has none."""

    at: str
    ns: int
    name: str = ""
    kind: str = "user"
    steps: frozenset[int] | None = None  # None: all
    ranks: frozenset[int] | None = None
    layer: int = 0

    def is_at(self, rank: int, step: int) -> bool:
        return (self.steps is None or step in self.steps) and (self.ranks is None or rank in self.ranks)


@dataclass(frozen=True)
class Slower:
    """Kernels take longer: those of an op or, without one, all that compute."""

    factor: float
    op: str = ""
    steps: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    ramp: bool = False  # from nothing more in the first step to the factor in the last

    def of(self, op: str, rank: int, step: int, steps: int) -> float:
        if (self.op and op != self.op) or (self.ranks is not None and rank not in self.ranks):
            return 1.0
        if self.steps is not None and step not in self.steps:
            return 1.0
        return 1 + (self.factor - 1) * step / max(steps - 1, 1) if self.ramp else self.factor


@dataclass(frozen=True)
class Job:
    seed: int = 0
    ranks: int = 1
    devices: int = 1  # driven by one process with nn.DataParallel (data_parallel.py)
    steps: int = 12
    layers: int = 4
    is_training: bool = True
    pipeline: bool = False  # ranks are stages
    kernel: float = 1.0  # times what kernels take in training.py
    host: float = 0.4  # times what the host takes there for ranges and launches
    depth: int = 1022  # places in the launch queue
    noise: float = 0.01
    uneven: float = 0.0  # batches of a rank and a step differ by as much
    is_even: bool = False  # ... and are made equal over the ranks
    is_same: bool = False  # ranks differ in nothing, not even in noise
    micro: int = 1  # batches whose gradients are accumulated, or that go through a pipeline
    validate_every: int = 0  # steps; 0: never
    checkpoint_every: int = 0
    item_every: int = 0  # steps after which the loss is fetched
    warm_up: int = 0  # steps in which kernels are loaded and memory is taken
    warm_up_ns: int = 20_000_000
    plain: frozenset[int] = frozenset()  # steps that do nothing of their own: no validation, no warm-up, ...
    load_ns: int = 60_000
    workers: int = 0  # 1: batches are loaded beside the loop
    batch_ns: int = 30_000  # the time to copy a batch to the device
    graphs: bool = False  # the forward is one launch (of inference)
    has_steps: bool = True
    has_functions: bool = True
    buckets: int = 3
    reduce_ns: int = 150_000  # the time of one bucket
    numbers: str = "bf16"  # bf16, simt16 (bf16 without tensor cores), tf32, fp32
    product: float = 1.0  # times the time of products: by what numbers and sizes make them slower

    # Faults.
    extras: tuple[Extra, ...] = ()
    slower: tuple[Slower, ...] = ()
    items: int = 0  # values fetched in a step, beside those of item_every
    synchronises: int = 0
    sync_after_load: bool = False
    pageable: bool = False
    mallocs: int = 0  # times in a step that cached memory is given back and taken again
    malloc_ns: int = 500_000
    module_loads: frozenset[int] = frozenset()  # steps in which kernels are loaded
    split: int = 1  # kernels for each
    few_blocks: int = 0  # blocks of each kernel; 0: enough
    odd: bool = False
    exposed: bool = False  # collectives begin after the backward
    small_collectives: bool = False  # one for each gradient
    gloo_ns: int = 0  # a collective of the host each step
    round_trips: int = 0
    round_trip_ns: int = 100_000
    fallbacks: int = 0
    fallback_ns: int = 400_000
    loop_optimizer: bool = False
    parameters: int = 16  # parameters of a layer, for a loop over parameters
    compiles: Mapping[int, int] = field(default_factory=dict)  # step -> ns
    regions: int = 1  # compiled pieces, if regions are there at all
    lookup_ns: int = 0  # the time to look up the code of a piece; 0: nothing is compiled
    casts: float = 0.0  # the time of a cast before each product, as a share of the product's time
    recompute: bool = False  # the forward of each layer again in the backward
    leak_bytes: int = 0  # a step
    longer: float = 0.0  # by so much of the first step's activations those of a step are larger than of the one before
    side_ns: int = 0  # copies on another stream that each layer waits for
    overhead: Mapping[int, int] = field(default_factory=dict)  # step -> ns in which the profiler writes its buffer

    # --- what tells rows of a trace (training_plan.Plan has the same)
    @property
    def fp32(self) -> bool:
        return self.numbers in ("tf32", "fp32")

    def random(self, *what: object) -> Random:
        return Random(" ".join(map(str, (self.seed, *what))))

    def batch(self, rank: int, step: int) -> float:
        """How large a batch is, beside the usual one."""
        if not self.uneven or step in self.plain:
            return 1.0
        ranks = range(self.ranks) if self.is_even or self.is_same else (rank,)
        sizes = [1 + self.uneven * (2 * self.random("batch", one, step).random() - 1) for one in ranks]
        return sum(sizes) / len(sizes)
