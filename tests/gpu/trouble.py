"""trouble.py CASE FOLDER WATCHER: programs in which something goes wrong, or is already there, recorded or not.

WATCHER is plain or record. Prints as JSON what happened, if the case comes to its end.
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

import opspan
from opspan import profiler
from programs import ACTIVITIES, DEVICE, HAS_GPU, wait, warm

CASE, FOLDER, WATCHER = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def watcher(part: str = "recorded") -> AbstractContextManager[Any]:
    return opspan.record(FOLDER / part, device=True) if WATCHER == "record" else nullcontext()


def too_much() -> None:
    (torch.ones(8, 8, device=DEVICE) @ torch.ones(8, 8, device=DEVICE)).sum()
    torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)


def left() -> dict[str, Any]:
    """Returns the state that a recording could have changed, and whether the next profilers start."""
    from torch.nn.modules import module

    state = {
        "profiles_on": torch.autograd._profiler_enabled(),
        "hooks": len(module._global_forward_hooks) + len(module._global_forward_pre_hooks),
    }
    with torch.profiler.profile(activities=ACTIVITIES) as prof:
        torch.ones(4, device=DEVICE).add_(1)
        wait()
    return state | {"ops_after": sum(event.name == "aten::add_" for event in prof.events())}


def oom_caught() -> dict[str, Any]:
    with watcher():
        try:
            too_much()
        except RuntimeError as error:
            kind, text = type(error).__name__, str(error)[:60]
        after = torch.ones(3, device=DEVICE).sum().item()
    return {"kind": kind, "text": text, "after": after, **left()}


def oom_leaves() -> dict[str, Any]:
    """The error leaves the recording, and is caught around it."""
    try:
        with watcher():
            too_much()
    except RuntimeError as error:
        return {"kind": type(error).__name__, "text": str(error)[:60], "cause": str(error.__cause__), **left()}
    return {}


def oom_ends_it() -> None:
    with watcher():
        too_much()


def exits() -> None:
    with watcher():
        torch.ones(3, device=DEVICE).sum().item()
        sys.exit(7)


def never_ended() -> dict[str, Any]:
    watcher().__enter__()
    return {"sum": torch.ones(3, device=DEVICE).sum().item()}


def torch_is_on() -> dict[str, Any]:
    step = warm("mlp")
    with torch.profiler.profile(activities=ACTIVITIES) as prof, watcher():
        step()
        wait()
    prof.export_chrome_trace(str(FOLDER / "torch.json"))
    return {}


def one_after_another() -> dict[str, Any]:
    step = warm("mlp")
    for turn in range(2):
        with torch.profiler.profile(activities=ACTIVITIES) as prof:
            step()
            wait()
        prof.export_chrome_trace(str(FOLDER / f"torch{turn}.json"))
        with watcher(f"recorded{turn}"):
            step()
            wait()
    return {}


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.full((1024,), float(at))


def loader() -> dict[str, Any]:
    torch.ones(2, device=DEVICE)  # the driver is in use before workers are forked
    batches = torch.utils.data.DataLoader(
        Numbers(), 16, num_workers=2, pin_memory=HAS_GPU, multiprocessing_context="fork"
    )
    with watcher():
        sums = [batch.to(DEVICE, non_blocking=True).sum().item() for _ in range(2) for batch in batches]
    return {"sums": sums, **left()}


def memory() -> dict[str, Any]:
    """The peak of the allocator, and a profile of the same steps."""
    step = warm("transformer_amp")
    if WATCHER == "record":
        prof: Any = profiler.profile(activities=ACTIVITIES, profile_memory=True, path=FOLDER / "recorded")
    else:
        prof = torch.profiler.profile(activities=ACTIVITIES, profile_memory=True)
    with prof:
        if HAS_GPU:
            torch.cuda.reset_peak_memory_stats()
        step()
        step()
        wait()
    prof.export_chrome_trace(str(FOLDER / "memory.json"))
    stats = torch.cuda.memory_stats() if HAS_GPU else {}
    return {name: stats.get(f"{name}.peak") for name in ("allocated_bytes.all", "reserved_bytes.all")}


CASES = (oom_caught, oom_leaves, oom_ends_it, exits, never_ended, torch_is_on, one_after_another, loader, memory)


def main() -> None:
    case = {case.__name__: case for case in CASES}[CASE]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said: dict[str, Any] = case() or {}
    print(json.dumps({**said, "has_gpu": HAS_GPU, "warnings": [str(one.message) for one in caught]}))


if __name__ == "__main__":
    main()
