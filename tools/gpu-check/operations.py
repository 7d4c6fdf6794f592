"""Operations of a known kind, each with few kernels, to test the rules that classify kernels by their names.

    OPERATIONS   name -> Operation. Its `build` makes the inputs, and returns a function that runs the operation once
    program      runs each operation once after a warm-up, in the process that a profiler measures
    main         runs all operations under torch.profiler, whose trace has names, sizes and occupancy

A name consists of the operation and the type, such as `conv2d.channels_last.bf16`. The most useful operations come
first, because the program stops when its time is over.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import gpu

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
TYPES |= {"fp64": torch.float64}
Run = Callable[[], Any]
DONE = "done"


@dataclass(frozen=True)
class Operation:
    build: Callable[..., Run]
    arguments: tuple[Any, ...]
    type_: str


OPERATIONS: dict[str, Operation] = {}


def add(name: str, build: Callable[..., Run], *arguments: Any, types: str = "bf16 fp16 tf32 fp32 fp64") -> None:
    for type_ in types.split():
        OPERATIONS[f"{name}.{type_}"] = Operation(build, arguments, type_)


def some(dtype: torch.dtype, *sizes: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*sizes, device=gpu.DEVICE).to(dtype).requires_grad_(grad)


def call(function: Callable[..., Any], *sizes: tuple[int, ...], **options: Any) -> Callable[[torch.dtype], Run]:
    """Returns a function that builds an operation. The operation calls `function` with random inputs of these sizes."""
    return lambda dtype: partial(function, *(some(dtype, *size) for size in sizes), **options)


def backward(function: Callable[..., Any], *sizes: tuple[int, ...], **options: Any) -> Callable[[torch.dtype], Run]:
    """Returns a function that builds an operation. The operation is a backward pass; building it runs the forward
    pass."""

    def build(dtype: torch.dtype) -> Run:
        inputs = [some(dtype, *size, grad=True) for size in sizes]
        result = function(*inputs, **options)
        return partial(torch.autograd.grad, result, inputs, torch.randn_like(result), retain_graph=True)

    return build


def last(function: Callable[..., Any], how: Callable[..., Any], *sizes: tuple[int, ...], **options: Any) -> Any:
    """Returns the result of `how`, which is `call` or `backward`. Images and weights get the format channels_last."""

    def in_channels_last(image: torch.Tensor, weight: torch.Tensor, **more: Any) -> torch.Tensor:
        formats = {"memory_format": torch.channels_last}
        return function(image.contiguous(**formats), weight.contiguous(**formats), **more)

    return how(in_channels_last, *sizes, **options)


def attention(how: Callable[..., Any], backend: SDPBackend) -> Callable[[torch.dtype], Run]:
    def attend(*qkv: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(*qkv, is_causal=True)

    return how(attend, *[(2, 4, 256, 64)] * 3)


def fp8_product(dtype: torch.dtype, by_row: bool) -> Run:
    left, right = (some(torch.float32, 256, 256).to(torch.float8_e4m3fn) for _ in range(2))
    scales = [torch.ones(256, 1), torch.ones(1, 256)] if by_row else [torch.ones(()), torch.ones(())]
    of_left, of_right = (scale.to(gpu.DEVICE) for scale in scales)
    return lambda: torch._scaled_mm(left, right.t(), scale_a=of_left, scale_b=of_right, out_dtype=torch.bfloat16)


def int8_product(dtype: torch.dtype) -> Run:
    left, right = (torch.randint(-9, 9, (256, 256), device=gpu.DEVICE, dtype=torch.int8) for _ in range(2))
    return lambda: torch._int_mm(left, right.t())


def grouped_product(dtype: torch.dtype, fp8: bool) -> Run:
    rows, experts = some(dtype, 256, 128), some(dtype, 4, 64, 128)
    ends = torch.tensor([64, 128, 192, 256], device=gpu.DEVICE, dtype=torch.int32)
    if not fp8:
        return lambda: torch._grouped_mm(rows, experts.transpose(-2, -1), offs=ends)
    rows, experts = rows.to(torch.float8_e4m3fn), experts.to(torch.float8_e4m3fn)
    scales = [torch.ones(256, device=gpu.DEVICE), torch.ones(4, 64, device=gpu.DEVICE)]
    return lambda: torch._scaled_grouped_mm(
        rows, experts.transpose(-2, -1), *scales, offs=ends, out_dtype=torch.bfloat16
    )


def recurrent(dtype: torch.dtype, kind: type[torch.nn.Module], back: bool) -> Run:
    network = kind(64, 128, batch_first=True).to(gpu.DEVICE, dtype)  # type: ignore[call-arg]
    inputs = some(dtype, 8, 16, 64, grad=True)
    if not back:
        return lambda: network(inputs)
    result = network(inputs)[0]
    return partial(torch.autograd.grad, result, inputs, torch.randn_like(result), retain_graph=True)


def of_indices(dtype: torch.dtype, back: bool) -> Run:
    weight = some(dtype, 1000, 128, grad=True)
    indices = torch.randint(0, 1000, (16, 64), device=gpu.DEVICE)
    if not back:
        return lambda: functional.embedding(indices, weight)
    result = functional.embedding(indices, weight)
    return partial(torch.autograd.grad, result, weight, torch.randn_like(result), retain_graph=True)


def loss(dtype: torch.dtype) -> Run:
    logits, targets = some(dtype, 256, 1000), torch.randint(0, 1000, (256,), device=gpu.DEVICE)
    return lambda: functional.cross_entropy(logits, targets)


def optimizer(dtype: torch.dtype, **options: bool) -> Run:
    weights = [some(dtype, 256, 256, grad=True) for _ in range(4)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return torch.optim.AdamW(weights, **options).step


def triton_kernel(dtype: torch.dtype, name: str) -> Run:
    import triton_kernels

    return getattr(triton_kernels, name)(some(dtype, 128, 128), some(dtype, 128, 128))


SQUARE, BATCH = (256, 256), (8, 128, 128)
LARGE = SQUARE if gpu.DRY else (2048, 2048)
IMAGE, WEIGHT, CHANNELS = (8, 64, 28, 28), (64, 64, 3, 3), (64, 1, 3, 3)
MOST = "bf16 fp16 tf32 fp32"
HALF = "bf16 fp16"

add("mm", call(torch.mm, SQUARE, SQUARE))
add("bmm", call(torch.bmm, BATCH, BATCH))
add("conv2d", call(functional.conv2d, IMAGE, WEIGHT, padding=1), types=MOST)
add("mm.fp8", fp8_product, False, types="bf16")
add("mm.fp8.by_row", fp8_product, True, types="bf16")
add("mm.int8", int8_product, types="int8")
for backend_ in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
    which = getattr(SDPBackend, backend_)
    types_ = {"FLASH_ATTENTION": "bf16", "CUDNN_ATTENTION": "bf16"}.get(backend_, "bf16 tf32 fp32")
    add(f"sdpa.{backend_.lower()}", attention(call, which), types=types_)
    add(f"sdpa.{backend_.lower()}.backward", attention(backward, which), types=types_)
add("triton.dot", triton_kernel, "dot", types="fp16 tf32")
add("triton.pointwise", triton_kernel, "pointwise", types="fp32")
add("conv2d.backward", backward(functional.conv2d, IMAGE, WEIGHT, padding=1), types=MOST)
add("conv2d.channels_last", last(functional.conv2d, call, IMAGE, WEIGHT, padding=1), types=MOST)
add("conv2d.channels_last.backward", last(functional.conv2d, backward, IMAGE, WEIGHT, padding=1), types=MOST)
add("grouped_mm", grouped_product, False, types="bf16")
add("grouped_mm.fp8", grouped_product, True, types="bf16")
add("linear", call(functional.linear, (100, 256), (512, 256), (512,)))
add("linear.odd", call(functional.linear, (77, 131), (53, 131), (53,)), types=MOST)
add("linear.backward", backward(functional.linear, (96, 256), (512, 256), (512,)), types=MOST)
add("addmm", call(torch.addmm, (256,), SQUARE, SQUARE))
add("baddbmm", call(torch.baddbmm, BATCH, BATCH, BATCH), types=MOST)
add("mm.transposed", call(lambda left, right: left.t() @ right, (512, 128), (512, 192)), types=MOST)
add("mm.large", call(torch.mm, LARGE, LARGE), types=MOST)
add("mm.one_column", call(torch.mm, SQUARE, (256, 1)), types="bf16 fp32")
add("mv", call(torch.mv, SQUARE, (256,)), types="bf16 fp32")
add("conv1d", call(functional.conv1d, (8, 64, 256), (64, 64, 3), padding=1), types="bf16 fp32")
add("conv3d", call(functional.conv3d, (2, 16, 8, 16, 16), (32, 16, 3, 3, 3)), types="bf16 tf32 fp32")
add("conv2d.depthwise", call(functional.conv2d, IMAGE, CHANNELS, padding=1, groups=64), types="bf16 fp32")
depthwise = partial(functional.conv2d, padding=1, groups=64)
add("conv2d.depthwise.backward", backward(depthwise, IMAGE, CHANNELS), types="bf16 fp32")
add("conv2d.1x1", call(functional.conv2d, IMAGE, (128, 64, 1, 1)), types="bf16 tf32")
add("conv_transpose2d", call(functional.conv_transpose2d, IMAGE, WEIGHT), types="bf16 fp32")
for kind_ in (torch.nn.LSTM, torch.nn.GRU):
    add(f"{kind_.__name__.lower()}", recurrent, kind_, False, types="fp16 tf32 fp32")
add("lstm.backward", recurrent, torch.nn.LSTM, True, types="fp16 tf32")
add("embedding", of_indices, False, types="bf16")
add("embedding.backward", of_indices, True, types="bf16")
add("layer_norm", call(functional.layer_norm, (256, 512), normalized_shape=(512,)), types="bf16 fp32")
add("layer_norm.backward", backward(functional.layer_norm, (256, 512), normalized_shape=(512,)), types="bf16")
add("group_norm", call(functional.group_norm, IMAGE, num_groups=8), types="bf16")
add("softmax", call(torch.softmax, SQUARE, dim=-1), types=HALF)
add("cross_entropy", loss, types="fp32")
add("max_pool2d", call(functional.max_pool2d, IMAGE, kernel_size=2), types="bf16")
add("interpolate", call(functional.interpolate, IMAGE, scale_factor=2.0), types="fp32")
for name_ in ("add", "mul"):
    add(name_, call(getattr(torch, name_), SQUARE, SQUARE), types=HALF)
for name_ in ("exp", "sum", "mean", "amax", "sort"):
    add(name_, call(getattr(torch, name_), SQUARE), types="bf16")
add("gelu", call(functional.gelu, SQUARE), types=HALF)
add("cumsum", call(torch.cumsum, SQUARE, dim=-1), types="bf16")
add("dropout", call(functional.dropout, SQUARE), types="bf16")
add("cast", call(lambda numbers: numbers.to(torch.float32), SQUARE), types=HALF)
add("cat", call(lambda *parts: torch.cat(parts), SQUARE, SQUARE), types="bf16")
add("transposed_copy", call(lambda numbers: numbers.t().contiguous(), SQUARE), types="bf16")
add("fft", call(torch.fft.rfft, SQUARE), types="fp32")
add("einsum", call(partial(torch.einsum, "bij,bkj->bik"), BATCH, BATCH), types="bf16")
add("adamw.foreach", optimizer, types="fp32")
OPERATIONS["adamw.fused.fp32"] = Operation(partial(optimizer, fused=True), (), "fp32")


@contextlib.contextmanager
def measured(mode: str, name: str) -> Iterator[None]:
    """Puts a range of this name around the block, for torch.profiler or in NVTX. ncu measures only blocks with a range
    in NVTX."""
    if mode == "profiler":
        with torch.profiler.record_function(f"operation {name}"):
            yield
        return
    torch.cuda.profiler.start()
    torch.cuda.nvtx.range_push(name)
    yield
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    torch.cuda.profiler.stop()


def program(mode: str, folder: Path, seconds: float, most: int) -> None:
    """Runs the operations in order. Then writes FOLDER/operations-MODE.json, which has for each operation either "done"
    or the reason why it was not done."""
    began = time.monotonic()
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(0)
    answers: dict[str, str] = {}
    for name, operation in list(OPERATIONS.items())[:most]:
        if time.monotonic() - began > seconds:
            answers[name] = "no time was left"
            continue
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = operation.type_ == "tf32"
        try:
            run = operation.build(TYPES.get(operation.type_, torch.int8), *operation.arguments)
            run()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001  some do not exist in every release, or on every card
            answers[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        # A range of NVTX belongs to one thread, so the backward pass must run on this thread, too.
        with torch.autograd.set_multithreading_enabled(False), measured(mode, name):
            run()
        torch.cuda.synchronize()
        answers[name] = DONE
    (folder / f"operations-{mode}.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")
    number = sum(answer == DONE for answer in answers.values())
    print(f"{number} of {len(answers)} operations, {time.monotonic() - began:.1f} s", flush=True)


def main(pieces: gpu.Pieces) -> None:
    def seen() -> None:
        program("profiler", pieces.folder, 60, len(OPERATIONS))

    pieces.piece("facts", gpu.facts)
    pieces.piece("trace", gpu.profiled, pieces.folder / "operations.json.gz", seen, record_shapes=True)
    pieces.piece("operations", done, pieces.folder, "profiler")


def done(folder: Path, mode: str) -> Any:
    """Reads FOLDER/operations-MODE.json, which `program` has written."""
    return json.loads((folder / f"operations-{mode}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    if gpu.DRY:
        gpu.replace_cuda()
    program(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
