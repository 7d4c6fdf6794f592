"""Real programs on a CPU, each with a plant. A plant is a change that makes the program slower for a known reason.

A program is Program.start + Program.text. Its arguments are the folder to record to, and "planted" or "plain". It
prints the seconds that its loop took. `if PLANTED` guards the plant. The run without the plant does the work of the
plant, too, but in a block `with beside()`, whose time is not measured. The reason is that a pause or other work slows
the caches and clocks of a processor, and no trace could show that cause. A plant takes longer than the difference
between runs of the same program. Programs of four ranks compute little, because a rank that sleeps makes the others
faster if they share processors. All ranks of a program run the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

START = '''
import contextlib, os, sys, time
import torch
from torch import nn
import opspan

PLANTED = sys.argv[2] == "planted"
torch.manual_seed(0)
torch.set_num_threads(1)
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


BESIDE = []  # seconds


@contextlib.contextmanager
def beside():
    began = time.perf_counter()
    yield
    if not PLANTED:
        BESIDE.append(time.perf_counter() - began)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(size, 2 * size), nn.Linear(2 * size, size), nn.LayerNorm(size)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, size=256, blocks=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(blocks))
        self.head = nn.Linear(size, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Data(torch.utils.data.Dataset):
    """Samples that take `slow` seconds each, from the batch `at` on, or in that batch only."""

    def __init__(self, batches, slow=0.0, at=None, batch=16):
        self.batches, self.slow, self.at, self.batch = batches, slow, at, batch

    def __len__(self):
        return self.batches * self.batch

    def __getitem__(self, number):
        if self.slow and (self.at is None or number // self.batch == self.at):
            with beside():
                time.sleep(self.slow)
        return torch.full((256,), number / len(self)), number % 10


def batches(steps=20, **options):
    return torch.utils.data.DataLoader(Data(steps, **options), batch_size=16)


def train(model, optimizer, rows, before=None, after=None, loss=nn.functional.cross_entropy):
    """Trains, and says how long it took."""
    with opspan.record(sys.argv[1], modules=True, record_shapes=True, memory=True, add=RANKS > 1) as rec:
        if RANKS > 1:
            torch.distributed.barrier()  # ranks begin at different times
        began = time.perf_counter()
        for number, (x, y) in enumerate(rows):
            if before is not None:
                x = before(number, x)
            optimizer.zero_grad()
            found = loss(model(x), y)
            found.backward()
            optimizer.step()
            if after is not None:
                after(number, found)
            rec.step()
        took = time.perf_counter() - began
    print(took - sum(BESIDE))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


model = Net()
'''


@dataclass(frozen=True)
class Program:
    """A program with a plant. `rules`, `place` and `has_time` have the same meaning as in Trial."""

    name: str
    text: str
    rules: tuple[str, ...]
    place: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 1
    has_time: bool = True
    start: str = START  # the first part of the program, before `text`


IN_BACKWARD = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        {slow}
        return gradient * 2
class Layer(nn.Module):
    def forward(self, x):
        return Twice.apply(x)
model.blocks.append(Layer())
train(model, sgd(model), {rows})"""

ALL = (
    Program("slow samples", "train(model, sgd(model), batches(slow=0.001))", ("data-loading",)),
    Program(
        "slow collate",
        """
def collate(rows):
    with beside():
        time.sleep(0.02)
    return torch.utils.data.default_collate(rows)
rows = torch.utils.data.DataLoader(Data(20), batch_size=16, collate_fn=collate)
train(model, sgd(model), rows)""",
        ("data-loading",),
    ),
    Program(
        "one slow batch",
        "train(model, sgd(model), batches(slow=0.005, at=12))",
        ("step-outliers",),
        {"step": "ProfilerStep#12"},
    ),
    Program(
        "one slow op",
        """
def before(number, x):
    if number == 7:
        with beside():
            big = torch.ones(1800, 1800)
            return x + 0 * torch.linalg.inv(big + torch.eye(1800) * 1800)[:16, :256]
    return x
train(model, sgd(model), batches(), before)""",
        ("step-outliers",),
        {"op": "linalg_inv"},
    ),
    Program(
        "a pause in one step",
        """
def after(number, found):
    if number == 5:
        with beside():
            time.sleep(0.15)
train(model, sgd(model), batches(), after=after)""",
        ("step-outliers",),
        {"step": "ProfilerStep#5"},
    ),
    Program(
        "a slow function between ops",
        """
def log(number, found):
    with beside():
        time.sleep(0.02)
train(model, sgd(model), batches(), after=log)""",
        ("host-outside-ops",),
    ),
    Program(
        "Python in the loop",
        """
def log(number, found):
    with beside():
        sum(n * n for n in range(400_000))
train(model, sgd(model), batches(), after=log)""",
        ("host-outside-ops",),
    ),
    Program(
        "a function in the model that is no op",
        """
class Slow(nn.Module):
    def forward(self, x):
        with beside():
            time.sleep(0.02)
        return x
model.blocks.append(Slow())
train(model, sgd(model), batches())""",
        ("host-outside-ops",),
        {"module": "blocks.3"},
    ),
    Program(
        "a checkpoint in two steps",
        """
import tempfile
def after(number, found):
    if number in (9, 14):
        with beside(), tempfile.TemporaryFile() as file:
            for _ in range(12):
                torch.save(model.state_dict(), file)
                os.fsync(file.fileno())
            time.sleep(0.05)
train(model, sgd(model), batches(30), after=after)""",
        ("step-outliers",),
        {"step": "ProfilerStep#9"},
    ),
    Program(
        "a slow backward",
        IN_BACKWARD.format(slow="with beside():\n            time.sleep(0.02)", rows="batches()"),
        ("heavy-backward", "host-outside-ops"),
        {"op": "Twice"},
    ),
    Program(
        "checkpointing",
        """
from torch.utils.checkpoint import checkpoint
class Again(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of
    def forward(self, x):
        return checkpoint(self.of, x, use_reentrant=False) if PLANTED else self.of(x)
model = Net(blocks=4)
for number, block in enumerate(model.blocks):
    model.blocks[number] = Again(block)
train(model, sgd(model), [(torch.ones(2048, 256), torch.zeros(2048, dtype=torch.long))] * 10)""",
        ("recompute",),
    ),
    Program(
        "casts to double",
        """
big = torch.ones(600, 1000)
def before(number, x):
    with beside():
        for _ in range(30):
            big.double().float()
    return x
train(model, sgd(model), batches(), before)""",
        ("casts",),
        {"op": ("aten::to", "aten::_to_copy")},
    ),
    Program(
        "compiled in the first step",
        """
if PLANTED:
    model = torch.compile(model, backend="aot_eager")
train(model, sgd(model), batches(30))""",
        ("step-outliers", "recompilation"),
    ),
    Program(
        "compiled anew for each size",
        """
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
torch._dynamo.config.cache_size_limit = 64
rows = [(torch.ones(16 + (n % 6 if PLANTED else 0), 256), torch.zeros(16 + (n % 6 if PLANTED else 0), dtype=torch.long))
        for n in range(12)]
for x, y in rows[:1]:
    nn.functional.cross_entropy(compiled(x), y).backward()
train(compiled, sgd(model), rows)""",
        ("recompilation",),
    ),
    Program(
        "memory that grows",
        """
kept = []
def after(number, found):
    if PLANTED:
        kept.append(torch.ones(2_000_000))
train(model, sgd(model), batches(), after=after)""",
        ("growing-memory",),
        has_time=False,
    ),
    Program(
        "a late rank",
        """
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(256, 10))
def before(number, x):
    if PLANTED and RANK == 2:
        time.sleep(0.04)
    return x
train(model, sgd(model), batches(), before)
torch.distributed.destroy_process_group()""",
        ("straggler",),
        {"ranks": (2,)},
        ranks=4,
    ),
    Program(
        "two late ranks",
        """
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(256, 10))
def before(number, x):
    if PLANTED and RANK in (1, 3):
        time.sleep(0.04)
    return x
train(model, sgd(model), batches(), before)
torch.distributed.destroy_process_group()""",
        ("straggler",),
        {"ranks": (1, 3)},
        ranks=4,
    ),
    Program(
        "ranks that are late in turn",
        """
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(256, 10))
def before(number, x):
    if PLANTED and RANK == number % RANKS:
        time.sleep(0.04)
    return x
train(model, sgd(model), batches(), before)
torch.distributed.destroy_process_group()""",
        ("uneven-ranks",),
        ranks=4,
    ),
    Program(
        "many small collectives",
        """
torch.distributed.init_process_group("gloo")
one = torch.ones(4)
torch.distributed.all_reduce(one)  # the first one connects the ranks
def after(number, found):
    for _ in range(60 if PLANTED else 0):
        torch.distributed.all_reduce(one)
train(model, sgd(model), batches(), after=after)
torch.distributed.destroy_process_group()""",
        ("small-collectives",),
        ranks=2,
    ),
    Program(
        "the collector of garbage in each step",
        """
import gc
junk = [[n] for n in range(300_000)]
def after(number, found):
    with beside():
        gc.collect()
train(model, sgd(model), batches(), after=after)""",
        ("host-outside-ops",),
    ),
)
