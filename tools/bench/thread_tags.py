"""Measures the cost of emit_pyroscope while the real agent of Pyroscope runs. Steps run with and without labels.

    python tools/bench/thread_tags.py            a table for tiny ops and two transformers (about 2 minutes)
    python tools/bench/thread_tags.py --quick    fewer rounds

The agent samples all the time, and sends its samples to a server on this machine. In the mode "agent", it samples steps
without labels. Times are processor time of the training thread, so other programs and the agent's own thread do not
count. In each round all modes run in turn. Every figure is the median over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from figures import figure, title

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

SIZES = {"tiny": (4, 1, 2), "transformer": (64, 4, 32), "large transformer": (256, 6, 64)}  # width, layers, length


def training_step(width: int, layers: int, length: int) -> Callable[[], None]:
    import torch

    torch.manual_seed(0)
    if layers == 1:
        model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
    else:
        layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(4, length, width)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], after: Callable[[], None], seconds: float) -> float:
    """Returns the processor time per step, in microseconds."""
    count, start = 0, time.thread_time()
    while (took := time.thread_time() - start) < seconds:
        step()
        after()
        count += 1
    return took / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    rounds = 5 if parser.parse_args().quick else 21
    import pyroscope
    import torch

    import opspan
    from pyroscope_server import serving

    torch.set_num_threads(1)
    modes: dict[str, tuple[str, ...]] = {
        "phase": ("phase",),
        "phase, step": ("phase", "step"),
        "phase, module, step": ("phase", "module", "step"),
    }
    with serving() as server:
        steps = {name: training_step(*size) for name, size in SIZES.items()}
        alone = {
            name: statistics.median(timed(step, _nothing, 0.2) for _ in range(rounds)) for name, step in steps.items()
        }
        pyroscope.configure(application_name="bench", server_address=server.url, gil_only=False, upload_interval=5)
        versions = f"pyroscope-io {metadata.version('pyroscope-io')}, torch {torch.__version__}"
        title("labels for Pyroscope, of a step beside the agent alone", f"{versions}; {rounds} rounds")
        for name, step in steps.items():
            times: dict[str, list[float]] = {mode: [] for mode in ("agent", *modes)}
            for _ in range(rounds):
                times["agent"].append(timed(step, _nothing, 0.2))
                for mode, by in modes.items():
                    with opspan.emit_pyroscope(by=by) as session:
                        times[mode].append(timed(step, session.step, 0.2))
            agent = statistics.median(times["agent"])
            figure(f"{name}: the agent, of none", agent / alone[name], beside=f"{agent:,.0f} / {alone[name]:,.0f} us")
            for mode in modes:
                us = statistics.median(times[mode])
                figure(f"{name}: by {mode}", us / agent, beside=f"{us:,.0f} us")
        pyroscope.shutdown()


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
