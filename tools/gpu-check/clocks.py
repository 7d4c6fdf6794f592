"""Measures clocks under load and the best rates of matrix products, to compare them with opspan's table of peaks."""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

import gpu

LOAD_S = 0.5 if gpu.DRY else 15.0
SIZES = (64,) if gpu.DRY else (4096, 8192)
TIMES = 30
BATCH = 100  # matrix products between two synchronisations
OPS_PER_CLOCK = 4096  # bf16 operations that a multiprocessor of Hopper does per clock cycle, without sparsity
BUFFER_BYTES = (1 << 20) if gpu.DRY else (4 << 30)
Product = Callable[[], Any]


def main(pieces: gpu.Pieces) -> None:
    facts = pieces.piece("facts", gpu.facts)
    pieces.piece("nvml", card)
    rates = {type_: pieces.piece(f"best {type_}", best, type_) for type_ in PRODUCTS}
    pieces.piece("best bandwidth", bandwidth)
    pieces.piece("peaks of opspan", peaks, facts.get("device", "cpu"), rates)
    pieces.piece("under load", under_load)


def numbers(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = (torch.randn(size, size, device=gpu.DEVICE) for _ in range(2))
    if dtype == torch.int8:
        left, right = (tensor.mul(20).clamp(-100, 100) for tensor in (left, right))
    return left.to(dtype), right.to(dtype)


def plain(dtype: torch.dtype, *, tf32: bool = False) -> Callable[[int], Product]:
    def build(size: int) -> Product:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right = numbers(size, dtype)
        result = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=result)

    return build


def fp8(size: int) -> Product:
    left, right = numbers(size, torch.float8_e4m3fn)
    scale = torch.ones((), device=gpu.DEVICE)
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return lambda: torch._scaled_mm(left, right.t(), scale_a=scale, scale_b=scale, **options)


def int8(size: int) -> Product:
    left, right = numbers(size, torch.int8)
    return lambda: torch._int_mm(left, right.t())


PRODUCTS = {
    "bf16": plain(torch.bfloat16),
    "fp16": plain(torch.float16),
    "tf32": plain(torch.float32, tf32=True),
    "fp8": fp8,
    "int8": int8,
    "fp32": plain(torch.float32),
    "fp64": plain(torch.float64),
}


def best(type_: str) -> dict[str, Any]:
    """Returns for each size the times and rates of a matrix product, and also the best rate of all sizes."""
    answers: dict[str, Any] = {}
    for size in SIZES if type_ not in ("fp32", "fp64") else SIZES[:1]:
        run = PRODUCTS[type_](size)
        times = milliseconds(run, TIMES, warm_up=5)
        answers[str(size)] = {
            "least_ms": min(times),
            "median_ms": statistics.median(times),
            "best_tera_per_s": 2 * size**3 / min(times) / 1e9,
            "median_tera_per_s": 2 * size**3 / statistics.median(times) / 1e9,
        }
        time.sleep(0.2)  # let the card cool down a little
    return answers | {"best_tera_per_s": max(answer["best_tera_per_s"] for answer in answers.values())}


def milliseconds(run: Product, times: int, warm_up: int = 0) -> list[float]:
    """Returns the duration of each run on the device."""
    for _ in range(warm_up):
        run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in pairwise(events)]


def bandwidth() -> dict[str, Any]:
    source = torch.ones(BUFFER_BYTES // 4, device=gpu.DEVICE)
    target = torch.empty_like(source)
    copy = min(milliseconds(lambda: target.copy_(source), 20, warm_up=3))
    fill = min(milliseconds(lambda: target.fill_(1.0), 20, warm_up=3))
    return {
        "bytes": BUFFER_BYTES,
        "copy_tb_per_s": 2 * BUFFER_BYTES / copy / 1e9,
        "fill_tb_per_s": BUFFER_BYTES / fill / 1e9,
    }


def peaks(device: str, rates: dict[str, Any]) -> dict[str, Any]:
    """Returns this card's peaks from opspan's table, the clock that the peaks assume, and the measured rates."""
    from opspan.analysis.peak_table import TABLE

    found = next((peaks for pattern, peaks in TABLE if re.search(pattern, device, re.IGNORECASE)), None)
    if found is None:
        return {"device": device, "known": False}
    measured = {type_: rate.get("best_tera_per_s") for type_, rate in rates.items()}
    answer = {
        type_: {
            "peak_tera_per_s": found.flops[type_] / 1e12 if type_ in found.flops else None,
            "best_tera_per_s": rate,
            "share": rate * 1e12 / found.flops[type_] if rate and type_ in found.flops else None,
        }
        for type_, rate in measured.items()
    }
    clock = found.flops["bf16"] / found.units / OPS_PER_CLOCK / 1e6 if found.units else None
    return {"device": device, "known": True, "name": found.name, "clock_of_peak_mhz": clock, "rates": answer}


def card() -> dict[str, Any]:
    """Reads the properties and clocks of the card from NVML. Does not change them."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return {
        "name": pynvml.nvmlDeviceGetName(handle),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "max_sm_mhz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "max_memory_mhz": pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "now": state(pynvml, handle),
    }


def state(pynvml: Any, handle: Any) -> dict[str, Any]:
    calls = {
        "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "watts": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "limit_watts": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "celsius": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
    answer: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            answer[name] = call()
        except Exception as error:  # noqa: BLE001  some cards do not have all values
            answer[name] = f"{type(error).__name__}: {error}"
    return answer


def under_load() -> dict[str, Any]:
    """Repeats one matrix product for some seconds. Returns the times of the products in each tenth of a second, and
    samples of the card's state."""
    run = PRODUCTS["bf16"](SIZES[-1])
    run()
    torch.cuda.synchronize()
    samples: list[dict[str, Any]] = []
    done = threading.Event()
    began = time.perf_counter()
    thread = threading.Thread(target=sample, args=(samples, done, began))
    thread.start()
    products: list[tuple[float, float]] = []
    while time.perf_counter() - began < LOAD_S:
        batch_began = time.perf_counter() - began
        at_ms = batch_began * 1e3
        for took in milliseconds(run, BATCH):
            products.append((at_ms, took))
            at_ms += took
    done.set()
    thread.join()
    tenths: dict[int, list[float]] = {}
    for at_ms, took in products:
        tenths.setdefault(int(at_ms // 100), []).append(took)
    by_tenth = [
        {
            "at_s": tenth / 10,
            "products": len(took),
            "median_ms": round(statistics.median(took), 4),
            "most_ms": max(took),
        }
        for tenth, took in sorted(tenths.items())
    ]
    return {
        "size": SIZES[-1],
        "products": len(products),
        "first_ms": [round(took, 4) for _, took in products[:300]],
        "by_tenth": by_tenth,
        "samples": samples,
    }


def sample(samples: list[dict[str, Any]], done: threading.Event, began: float) -> None:
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception as error:  # noqa: BLE001  without NVML there are only the times
        samples.append(gpu.reason(error))
        return
    while not done.wait(0.1):
        samples.append({"at_s": round(time.perf_counter() - began, 3)} | state(pynvml, handle))
