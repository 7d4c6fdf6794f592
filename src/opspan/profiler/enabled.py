"""Lets torch.autograd._profiler_enabled() answer True while a profile is on.

DataPipes and other libraries name their ranges only then. The name of the function is replaced, because torch's own
state would keep torch.profiler from starting.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

_RPC = "torch.distributed.rpc"  # it would use torch's profiler of another process, which is off

_lock = threading.Lock()
_profiles = 0  # how many profiles are on
_torchs: Any = None  # torch's function, while ours has its name


def start() -> None:
    global _profiles, _torchs
    import torch

    with _lock:
        _profiles += 1
        if torch.autograd._profiler_enabled is not _profiler_enabled:
            _torchs = torch.autograd._profiler_enabled
            torch.autograd._profiler_enabled = _profiler_enabled


def stop() -> None:
    global _profiles
    import torch

    with _lock:
        _profiles -= 1
        if not _profiles and torch.autograd._profiler_enabled is _profiler_enabled:
            torch.autograd._profiler_enabled = _torchs


def _profiler_enabled() -> bool:
    # A program may have kept this function, and call it after the profile.
    asks_for_rpc = str(sys._getframe(1).f_globals.get("__name__", "")).startswith(_RPC)
    return bool(_torchs()) or (_profiles > 0 and not asks_for_rpc)
