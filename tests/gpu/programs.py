"""Six programs for a GPU that do the same in each run, bit for bit. Where torch sees no GPU they run on the CPU, so
that a machine without one tests that they run.

Each function of PROGRAMS makes its model and returns a function that trains one step and returns its results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
ACTIVITIES = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if HAS_GPU else [])]

Step = Callable[[], list[torch.Tensor]]
PROGRAMS: dict[str, Callable[[], Step]] = {}


def program(make: Callable[[], Step]) -> Callable[[], Step]:
    PROGRAMS[make.__name__] = make
    return make


def same_each_time() -> None:
    """Asks for kernels that add in the same order each time. cuBLAS wants CUBLAS_WORKSPACE_CONFIG as well."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it launches kernels that programs do not have
    torch.backends.cudnn.benchmark = False


def wait() -> None:
    if HAS_GPU:
        torch.cuda.synchronize()


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """The bits of the tensors, as a short text."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


@program
def mlp() -> Step:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(128, 256, device=DEVICE)
    labels = torch.randint(64, (128,), device=DEVICE)

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return [loss, *model.parameters()]

    return step


@program
def conv_net() -> Step:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2),
        torch.nn.ReLU(),
    ).to(DEVICE)
    head = torch.nn.Linear(32, 10).to(DEVICE)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    x = torch.randn(8, 3, 32, 32, device=DEVICE)

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad(set_to_none=False)
        loss = head(model(x).mean((2, 3))).square().mean()
        loss.backward()
        optimizer.step()
        return [loss, *model.parameters(), *head.parameters()]

    return step


@program
def transformer_amp() -> Step:
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True).to(DEVICE)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(DEVICE)
    x = torch.randn(4, 64, 128, device=DEVICE)

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16 if HAS_GPU else torch.bfloat16):
            loss = layer(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss, *layer.parameters()]

    return step


def on_stream(stream: Any) -> AbstractContextManager[Any]:
    return torch.cuda.stream(stream) if HAS_GPU else nullcontext()


@program
def two_streams() -> Step:
    streams = [torch.cuda.Stream() if HAS_GPU else None for _ in range(2)]
    a, b = (torch.randn(512, 512, device=DEVICE) for _ in range(2))

    def step() -> list[torch.Tensor]:
        results = []
        for number, stream in enumerate(streams):
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with on_stream(stream):
                results.append(torch.mm(a, b).relu_() + number)
        for stream in streams:
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
        return [results[0] + results[1]]

    return step


@program
def copies() -> Step:
    pageable = torch.arange(1 << 18, dtype=torch.float32)
    pinned = pageable.pin_memory() if HAS_GPU else pageable.clone()
    back = torch.empty_like(pinned, pin_memory=HAS_GPU)
    large = torch.ones(1 << 22, device=DEVICE)

    def step() -> list[torch.Tensor]:
        one = pinned.to(DEVICE, non_blocking=True)
        other = pageable.to(DEVICE)
        twice = (one + other).clone()
        back.copy_(twice, non_blocking=True)
        total = large.sum()  # a sum of many blocks clears its counters first: a memset
        wait()
        return [back.clone(), twice.cpu(), total]

    return step


@program
def optimizers() -> Step:
    def parameters() -> list[torch.nn.Parameter]:
        return [torch.nn.Parameter(torch.randn(size, 32, device=DEVICE)) for size in (8, 16, 24)]

    both = [parameters() for _ in range(2)]
    foreach = torch.optim.Adam(both[0], lr=0.01, foreach=True)
    fused = torch.optim.Adam(both[1], lr=0.01, fused=True)

    def step() -> list[torch.Tensor]:
        for optimizer, group in zip((foreach, fused), both, strict=True):
            optimizer.zero_grad()
            torch.stack([parameter.square().sum() for parameter in group]).sum().backward()
            optimizer.step()
        return [*both[0], *both[1]]

    return step


def warm(name: str) -> Step:
    """The step of a program, after two steps: what the first ones load and choose is not the program's."""
    same_each_time()
    step = PROGRAMS[name]()
    for _ in range(2):
        step()
    wait()
    return step
