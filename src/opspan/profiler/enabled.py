"""Makes torch.autograd._profiler_enabled() return True while a profile of opspan is recording.

DataPipes and other libraries name their ranges only if it returns True. This module replaces the function, because
torch's own flag would prevent torch.profiler from starting.
"""

from __future__ import annotations

import sys

from opspan.emit.replaced_name import ReplacedName

_RPC = "torch.distributed.rpc"  # with True, RPC would use torch's profiler in other processes, but that profiler is off


def _profiler_enabled() -> bool:
    # `users` is checked, because a program may have stored this function and may call it after the profile.
    asks_for_rpc = str(sys._getframe(1).f_globals.get("__name__", "")).startswith(_RPC)
    return bool(_name.before()) or (_name.users > 0 and not asks_for_rpc)


# With this attribute, torch.compile and torch.export treat the result as a constant, as for torch's function.
_profiler_enabled._dynamo_marked_constant = True  # type: ignore[attr-defined]

_name = ReplacedName("torch.autograd", "_profiler_enabled", _profiler_enabled)
start, stop = _name.start, _name.stop
