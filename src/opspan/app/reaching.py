"""Makes a process listen for `opspan attach` if it does not listen yet. It uses sys.remote_exec of Python 3.14, with
which one process makes another process run a file. Both processes must run the same version of Python.

This needs permission to trace the other process: both processes must belong to the same user, and a container often
needs the capability SYS_PTRACE.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from opspan import private_files
from opspan.app import processes
from opspan.errors import UsageError
from opspan.printable import printable

# Maximum number of seconds to wait until the other process listens. Python runs the script only between two lines of
# the other process's code.
_SECONDS = 10.0
_READY = "start it with `opspan run --idle -- python train.py`, or call opspan.listen() in it"

# The other process runs this script. Its Python may lack opspan, so the script also searches the folder from which this
# process imported opspan. Errors are written to a file beside the script instead of the other process's terminal.
_SCRIPT = """\
def _opspan():
    import sys
    try:
        try:
            import opspan
        except ImportError:
            sys.path.append({source!r})
            try:
                import opspan
            finally:
                sys.path.remove({source!r})
        opspan.listen()
    except Exception as error:
        with open({report!r}, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{{type(error).__name__}}: {{error}}")
_opspan()
del _opspan
"""


def reach(pid: int) -> str:
    """Makes the process listen, and returns the path of its socket."""
    remote_exec: Callable[[int, str], None] | None = getattr(sys, "remote_exec", None)
    if remote_exec is None:
        raise UsageError(f"process {pid} does not listen: {_READY} (or use Python 3.14 on both sides)")
    with private_files.claimed(None, "opspan-reach-") as folder:
        script, report = folder / "listen.py", folder / "said"
        source = str(Path(__file__).resolve().parents[2])
        script.write_text(_SCRIPT.format(source=source, report=str(report)), encoding="utf-8")
        try:
            remote_exec(pid, str(script))
        except PermissionError as error:
            raise UsageError(
                f"process {pid} does not listen, and the system does not let us into it ({error}): {_READY}; "
                "in a container, sys.remote_exec needs the capability SYS_PTRACE"
            ) from error
        # The process is not Python, has another version of Python, or forbids remote_exec.
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"process {pid} does not listen, and cannot be made to ({error}): {_READY}") from error
        return _wait(pid, report)


def _wait(pid: int, report: Path) -> str:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        if (path := processes.listens_at(pid)) is not None:
            return path
        if report.is_file():
            time.sleep(0.05)  # gives the other process time to write the error
            why = printable(report.read_text(encoding="utf-8", errors="replace")[:500])
            raise UsageError(f"process {pid} cannot listen: {why}")
        time.sleep(0.05)
    raise UsageError(f"process {pid} runs no line of Python for {_SECONDS:.0f} s, so it cannot be reached: {_READY}")
