"""Real programs on a GPU, each with a plant. The module program_texts has such programs for a CPU.

A program runs three steps before it is recorded, because the first steps also prepare the device, its libraries and its
allocator. Programs share the device. While the loop of one program runs, all other programs wait. Batches are large, so
that the device decides how long a step takes. The host would be a bad measure, because its time for a launch differs by
a sixth from process to process (on an H100 with 16 processors, the same 20 steps took 146 to 216 ms with batches of
4,096).

On a CPU, the run without the plant also does the work of the plant, but outside of the measured time. On a GPU it does
not do this work, because the device would go on with the step while no time is measured.
"""

from __future__ import annotations

from program_texts import IN_BACKWARD, START, Program

ON_DEVICE = f"""{START}
import fcntl

SIZE, BATCH = map(int, os.environ.get("OPSPAN_JUDGE_SIZES", "2048 16384").split())
WARM = 3
DEVICE = torch.device(os.environ.get("OPSPAN_JUDGE_DEVICE", "cuda"))
TURN = open(os.environ["OPSPAN_JUDGE_TURN"], "w")
wait = torch.cuda.synchronize if DEVICE.type == "cuda" else lambda: None


def net(size=SIZE, blocks=8, kind=torch.bfloat16):
    return Net(size, blocks).to(DEVICE, kind)


def batch(size=SIZE, rows=BATCH, kind=torch.bfloat16):
    return torch.randn(rows, size, device=DEVICE, dtype=kind), torch.randint(10, (rows,), device=DEVICE)


def train(model, optimizer, rows, before=None, after=None, loss=nn.functional.cross_entropy):
    def step(number, x, y):
        if before is not None:
            x = before(number, x)
        optimizer.zero_grad()
        found = loss(model(x), y)
        found.backward()
        optimizer.step()
        if after is not None:
            after(number, found)

    fcntl.flock(TURN, fcntl.LOCK_SH)
    for number in range(-WARM, 0):
        step(number, *next(iter(rows)))
    with opspan.record(sys.argv[1], modules=True, record_shapes=True, device=DEVICE.type == "cuda") as rec:
        wait()
        fcntl.flock(TURN, fcntl.LOCK_UN)
        fcntl.flock(TURN, fcntl.LOCK_EX)
        began = time.perf_counter()
        for number, (x, y) in enumerate(rows):
            step(number, x, y)
            rec.step()
        wait()
        took = time.perf_counter() - began
        fcntl.flock(TURN, fcntl.LOCK_UN)
    print(took)


def each(block, of):
    '''The blocks of a model within `of`.'''
    for number, one in enumerate(model.blocks):
        model.blocks[number] = of(one)


class Around(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block


model = net()
rows = [batch()] * 20
"""


def program(name: str, text: str, *rules: str, has_time: bool = True, **place: str) -> Program:
    return Program(f"gpu: {name}", text, rules, place, has_time=has_time, start=ON_DEVICE)


def after_steps(do: str, *, first: str = "", which: str = "") -> str:
    """Returns the text of a program whose plant is the code `do`. The plant runs after each step, or only after steps
    that meet the condition `which`."""
    plant = f"def after(number, found):\n    if PLANTED{which}:\n        {do}"
    return f"{first}\n{plant}\ntrain(model, sgd(model), rows, after=after)"


IN_BLOCKS = """
class Changed(Around):
    def forward(self, x):
        x = self.block(x)
{body}
        return x
each(model, Changed)
train(model, sgd(model), rows)"""

ALL = (
    program(
        "a slow loader",
        """
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, number):
        if PLANTED:
            time.sleep(0.02)
        return number
class Rows:
    def __iter__(self):
        return (rows[0] for _ in torch.utils.data.DataLoader(Numbers()))
train(model, sgd(model), Rows())""",
        "data-loading",
    ),
    program(
        "a loader that copies from pageable memory",
        """
host = torch.randn(4 * BATCH, SIZE)
def before(number, x):
    return x + host.to(DEVICE)[:BATCH].bfloat16() if PLANTED else x
train(model, sgd(model), rows, before)""",
        "exposed-copies",
        "blocking-copies",
    ),
    program(
        "a number read in each block",
        IN_BLOCKS.format(body="        most = x.abs().max()\n        assert not PLANTED or most.item() < 1e9"),
        "item",
        op="aten::_local_scalar_dense",
    ),
    program("waiting after each block", IN_BLOCKS.format(body="        PLANTED and wait()"), "synchronise"),
    program(
        "to the host and back in each block",
        IN_BLOCKS.format(body="        x = x.cpu().to(DEVICE) if PLANTED else x"),
        "there-and-back",
        "exposed-copies",
        "blocking-copies",
    ),
    program(
        "sorted by the host",
        IN_BLOCKS.format(
            body="        x = x + (x[:256].float().cpu().sort().values.to(DEVICE).sum() * 0 if PLANTED else 0)"
        ),
        "late-host",
        "cpu-fallback",
        op="aten::sort",
    ),
    program(
        "results that are copied to the host",
        after_steps("kept.cpu()", first="kept = torch.randn(2 * BATCH, SIZE, device=DEVICE)"),
        "exposed-copies",
        "blocking-copies",
    ),
    program(
        "an optimizer that goes one by one",
        """
model = net(512, blocks=24)
optimizer = torch.optim.Adam(model.parameters(), foreach=not PLANTED)
train(model, optimizer, [batch(512)] * 20)""",
        "optimizer-loop",
    ),
    program(
        "products in FP32",
        """
torch.backends.cuda.matmul.allow_tf32 = not PLANTED
model = net(kind=torch.float32)
train(model, sgd(model), [batch(kind=torch.float32)] * 20)""",
        "tf32-off",
        has_time=False,
    ),
    program(
        "sizes that do not fit",
        "size = SIZE - 1 if PLANTED else SIZE\nmodel = net(size)\ntrain(model, sgd(model), [batch(size)] * 20)",
        "odd-sizes",
        has_time=False,
    ),
    program(
        "casts to float and back",
        """
def before(number, x):
    for _ in range(60 if PLANTED else 0):
        x.float().bfloat16()
    return x
train(model, sgd(model), rows, before)""",
        "casts",
        op="aten::_to_copy",
    ),
    program(
        "blocks that run again for the backward",
        """
from torch.utils.checkpoint import checkpoint
class Again(Around):
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False) if PLANTED else self.block(x)
each(model, Again)
train(model, sgd(model), rows)""",
        "recompute",
    ),
    program(
        "memory that is given back in each step",
        after_steps("torch.cuda.empty_cache()"),
        "allocation",
    ),
    program(
        "a pause in one step",
        after_steps("time.sleep(0.15)", which=" and number == 8"),
        "step-outliers",
        step="ProfilerStep#8",
    ),
    program("a slow function between ops", after_steps("time.sleep(0.02)"), "late-host", "host-outside-ops"),
    program(
        "a slow block",
        IN_BLOCKS.format(
            body="        if PLANTED and self.block is model.blocks[3].block:\n            time.sleep(0.02)"
        ),
        "late-host",
        "host-outside-ops",
        module="blocks.3",
    ),
    program(
        "the collector of garbage in each step",
        after_steps("gc.collect()", first="import gc\njunk = [[n] for n in range(100_000)]"),
        "late-host",
        "host-outside-ops",
    ),
    program(
        "one slow op",
        """
big = torch.eye(6000, device=DEVICE)
torch.linalg.inv(big)
def before(number, x):
    return x + torch.linalg.inv(big)[0, 0].bfloat16() * 0 if PLANTED and number == 11 else x
train(model, sgd(model), rows, before)""",
        "step-outliers",
        step="ProfilerStep#11",
        op="linalg_inv",
    ),
    program(
        "a batch in many pieces",
        IN_BLOCKS.format(body="        x = torch.cat([piece.sin() for piece in x.chunk(200 if PLANTED else 1)])"),
        "small-kernels",
        "launch-bound",
        "late-host",
    ),
    program(
        "a kernel of few blocks",
        """
long = torch.ones(2, 1 << 22, device=DEVICE)
def before(number, x):
    if PLANTED:
        long.cumsum(1)
    return x
train(model, sgd(model), rows, before)""",
        "few-blocks",
        "dominating-kernel",
        has_time=False,
        op="aten::cumsum",
    ),
    program(
        "compiled anew for each size",
        """
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
torch._dynamo.config.cache_size_limit = 64
rows = [batch(rows=BATCH - 64 * (number % 6 if PLANTED else 0)) for number in range(12)]
train(compiled, sgd(model), rows)""",
        "recompilation",
    ),
    program(
        "a slow backward",
        IN_BACKWARD.format(slow="for _ in range(200 if PLANTED else 0):\n            gradient.sin()", rows="rows"),
        "heavy-backward",
        has_time=False,
        op="Twice",
    ),
    program(
        "kernels that are loaded in a late step",
        """
def before(number, x):
    if number == 9 or (number == -1 and not PLANTED):
        part = x[:64, :64].float()
        for one in ("erfinv", "lgamma", "digamma", "sinc", "logit", "i0", "exp2", "frac", "acosh", "atanh"):
            getattr(torch, one)(part)
        torch.sort(part), torch.cummax(part, 0), torch.median(part), torch.mode(part), torch.unique(part)
    return x
train(model, sgd(model), rows, before)""",
        "module-loading",
        "step-outliers",
        step="ProfilerStep#9",
    ),
)
