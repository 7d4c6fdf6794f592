"""Measures what `record(compiled=True)` costs a step of a compiled transformer, beside `record()` and no session.

    python tools/bench/compiled.py            (about 3 minutes, most of them to compile)
    python tools/bench/compiled.py --quick    fewer rounds

One model is compiled outside of all sessions. An equal one is compiled inside of a session with `compiled=True`: its
kernels are ranges. In each round all modes run in turn. Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable

from figures import figure, title


def compiled_step() -> Callable[[], None]:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
    model, x = torch.compile(layer), torch.randn(8, 64, 128)

    def step() -> None:
        model(x).sum().backward()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds = 15 if parser.parse_args().quick else 60
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    import torch

    import opspan

    torch.set_num_threads(1)
    plain = compiled_step()
    plain()
    torch.compiler.reset()
    traced = compiled_step()
    with opspan.record(tempfile.mkdtemp(), add=True, compiled=True):
        traced()
    modes: dict[str, tuple[Callable[[], None], Callable[[], contextlib.AbstractContextManager[object]]]] = {
        "no session": (plain, contextlib.nullcontext),
        "no session, kernels are ranges": (traced, contextlib.nullcontext),
        "record()": (plain, opspan.record),
        "record(compiled=True)": (traced, lambda: opspan.record(compiled=True)),
    }
    times: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(rounds):
        for name in random.sample(list(modes), len(modes)):
            step, session = modes[name]
            with session():
                step()
                began = time.perf_counter()
                for _ in range(10):
                    step()
                times[name].append((time.perf_counter() - began) / 10)
    medians = {name: statistics.median(values) for name, values in times.items()}
    title("a step of a compiled transformer")
    for name, seconds in medians.items():
        print(f"  {name:32} {seconds * 1e3:8.3f} ms")
    base = medians["no session"]
    figure("kernels are ranges, no session", medians["no session, kernels are ranges"] / base, most=1.01)
    figure("record(compiled=True), of record()", medians["record(compiled=True)"] / medians["record()"], most=1.03)


if __name__ == "__main__":
    main()
