"""Programs as torch's documentation and tutorials have people write them: only the import line is another one.

Each runs with torch's module and with opspan's, and shows the same ops.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emit.running import forked
from tiers import before_release

torch = pytest.importorskip("torch")

IMPORTS = {
    "torch": "from torch import profiler; from torch.autograd import profiler as autograd_profiler",
    "opspan": "from opspan import autograd_profiler, profiler",
}
HEAD = """
import glob, gzip, io, json, os, re, sys, warnings
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
os.chdir(sys.argv[1])

class Block(nn.Module):
    def __init__(self, inner, outer, stride=1):
        super().__init__()
        self.one = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outer)
        self.short = nn.Conv2d(inner, outer, 1, stride=stride)

    def forward(self, x):
        return F.relu(self.norm(self.one(x)) + self.short(x))

model = nn.Sequential(Block(3, 4), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = [(torch.rand(2, 3, 12, 12), torch.randint(0, 5, (2,))) for _ in range(10)]
SHOWN = []

def train(batch):
    inputs, labels = batch
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def show(text):
    names = r"aten::\\w+|ProfilerStep\\*|model_inference|label-z|[A-Z]\\w*Backward0"
    SHOWN.append(sorted(set(re.findall(names, text))))

train(images[0])
inputs = images[0][0]
from torch.profiler import ProfilerActivity
"""

SNIPPETS = {
    "times of a model": """
with profiler.profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    with profiler.record_function("model_inference"):
        model(inputs)
show(prof.key_averages().table(sort_by="cpu_time_total", row_limit=100))
show(prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=100))
show(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=-1))
""",
    "memory": """
with profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as prof:
    model(inputs)
for key in ("self_cpu_memory_usage", "cpu_memory_usage"):
    table = prof.key_averages().table(sort_by=key, row_limit=100)
    assert "CPU Mem" in table
    show(table)
""",
    "a chrome trace": """
with profiler.profile(activities=[ProfilerActivity.CPU]) as prof:
    model(inputs)
prof.export_chrome_trace("trace.json")
with profiler.profile(activities=[ProfilerActivity.CPU]) as prof:
    model(inputs)
prof.export_chrome_trace("trace.json.gz")
show(open("trace.json").read())
show(gzip.open("trace.json.gz", "rt").read())
""",
    "stacks": """
with profiler.profile(activities=[ProfilerActivity.CPU], with_stack=True) as prof:
    model(inputs)
show(prof.key_averages(group_by_stack_n=5).table(sort_by="self_cpu_time_total", row_limit=-1))
prof.export_stacks("profiler_stacks.txt", "self_cpu_time_total")
assert os.path.exists("profiler_stacks.txt")
""",
    "a long run": """
def trace_handler(p):
    show(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1))
    p.export_chrome_trace("trace_" + str(p.step_num) + ".json")

with profiler.profile(
    activities=[ProfilerActivity.CPU],
    schedule=profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=trace_handler,
) as p:
    for batch in images:
        train(batch)
        p.step()
SHOWN.append(sorted(glob.glob("trace_*.json")))
""",
    "TensorBoard": """
with profiler.profile(
    schedule=profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
    on_trace_ready=profiler.tensorboard_trace_handler("./log/resnet"),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as prof:
    for step, batch in enumerate(images):
        prof.step()
        if step >= 1 + 1 + 3:
            break
        train(batch)
[path] = glob.glob("./log/resnet/*.pt.trace.json")
show(open(path).read())
""",
    "by hand": """
prof = profiler.profile(
    schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=profiler.tensorboard_trace_handler("./log/hand", worker_name="one", use_gzip=True),
)
prof.start()
for batch in images[:5]:
    prof.step()
    train(batch)
prof.stop()
[path] = glob.glob("./log/hand/one.*.pt.trace.json.gz")
show(gzip.open(path, "rt").read())
""",
    "the lower level": """
x = torch.randn((1, 1), requires_grad=True)
with autograd_profiler.profile() as prof:
    for _ in range(100):
        y = x ** 2
        y.backward()
show(prof.key_averages().table(sort_by="self_cpu_time_total"))
[power] = [row for row in prof.key_averages() if row.key == "aten::pow" ]
SHOWN.append(power.count)
""",
    "a label": """
x = torch.randn((1, 1), requires_grad=True)
with autograd_profiler.profile() as prof:
    y = x ** 2
    with autograd_profiler.record_function("label-z"):
        z = y ** 3
    y.backward()
show(prof.key_averages().table(sort_by="self_cpu_time_total"))

@autograd_profiler.record_function("label-z")
def labelled():
    return y.detach() * 2

with autograd_profiler.profile() as prof:
    labelled()
show(str(prof))
""",
    "on and off": """
with profiler.profile(activities=[ProfilerActivity.CPU]) as p:
    torch.ones(1).neg()
    p.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
    torch.ones(1).exp()
    p.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
    torch.ones(1).sin()
show(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1))
""",
    "an execution trace": """
observer = profiler.ExecutionTraceObserver()
observer.register_callback("execution.json")
with profiler.profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as p:
    train(images[0])
show(open("execution.json").read())
show(p.key_averages().table())
""",
}


ALWAYS = ("memory", "stacks", "a long run", "TensorBoard", "the lower level")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALWAYS, *before_release(name for name in SNIPPETS if name not in ALWAYS)])
def test_only_the_import_line_is_another_one(tmp_path: Path, name: str) -> None:
    if name == "on and off" and not hasattr(torch.profiler.profile, "toggle_collection_dynamic"):
        pytest.skip("this torch cannot toggle the collection")
    shown = {}
    for module, imported in IMPORTS.items():
        folder = tmp_path / module
        folder.mkdir()
        done = forked(HEAD + imported + "\n" + SNIPPETS[name] + "\nprint(json.dumps(SHOWN))\n", str(folder))
        assert done.returncode == 0, done.stderr
        shown[module] = json.loads(done.stdout.splitlines()[-1])
    assert shown["opspan"] == shown["torch"]
    assert shown["torch"]
    assert all(shown["torch"])


def test_the_writer_that_snippets_import_from_the_wrong_module(tmp_path: Path) -> None:
    code = """
try:
    import torch.utils.tensorboard as theirs
except ImportError as error:
    theirs = None
try:
    from opspan.profiler.tensorboard import SummaryWriter
    assert SummaryWriter is theirs.SummaryWriter
except ImportError:
    assert theirs is None
import opspan.profiler.tensorboard as ours
assert not hasattr(ours, "nonsense")
"""
    done = forked(code)
    assert done.returncode == 0, done.stderr
