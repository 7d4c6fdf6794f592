"""Lets torch.autograd._profiler_enabled() answer True while a profile is on.

DataPipes and other libraries name their ranges only then. The name of the function is replaced, because torch's own
state would keep torch.profiler from starting.
"""

from __future__ import annotations

import sys

from opspan.emit.replaced_name import ReplacedName

_RPC = "torch.distributed.rpc"  # it would use torch's profiler of another process, which is off


def _profiler_enabled() -> bool:
    # A program may have kept this function, and call it after the profile.
    asks_for_rpc = str(sys._getframe(1).f_globals.get("__name__", "")).startswith(_RPC)
    return bool(_name.before()) or (_name.users > 0 and not asks_for_rpc)


# While torch.compile or an export traces a program, it takes the answer as a constant, as that of torch's function.
_profiler_enabled._dynamo_marked_constant = True  # type: ignore[attr-defined]

_name = ReplacedName("torch.autograd", "_profiler_enabled", _profiler_enabled)
start, stop = _name.start, _name.stop
