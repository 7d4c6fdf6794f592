"""Samples this process with Linux's `perf` while a `with` block runs, for the demo.

    samples = OwnSamples(folder)
    with samples: ...
    samples.why_not() -> None if the samples are in the folder, else a sentence that says why not

Nothing of this is an error for the demo. `perf script` needs about a second to read the symbols of torch's libraries,
so it runs beside what the demo does next.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from opspan.app import sampling

if TYPE_CHECKING:
    from opspan.app.sampling import Sampler

# The demo trains for some ms, so samples must be close together. Machines may allow fewer in a second.
FREQUENCY_HZ = 4999
_MOST_PER_SECOND = Path("/proc/sys/kernel/perf_event_max_sample_rate")
WAIT_S = 2.0  # for perf to begin or end, which takes some 50 ms
TEXT_S = 6.0  # for `perf script`, from the end of the block on; a machine that is not busy needs about one


class OwnSamples:
    def __init__(self, folder: Path) -> None:
        self._perf: Sampler | None = None
        self._text: Future[Path] | None = None
        self._why = ""
        try:
            self._perf = sampling.sampler(folder, _frequency_hz(), wait_s=WAIT_S, end_s=WAIT_S)
        except (sampling.NoSamples, OSError) as error:
            self._why = str(error)

    def __enter__(self) -> None:
        if self._perf is None:
            return
        try:
            self._perf.start()
        except OSError as error:
            self._perf, self._why = None, str(error)
        else:
            self._perf.attach()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._perf is None:
            return
        if error is not None:
            self._perf.discard()
            return
        pool = ThreadPoolExecutor(1)
        self._text = pool.submit(self._perf.finish_quickly, TEXT_S)
        pool.shutdown(wait=False)

    def why_not(self) -> str | None:
        """Waits for the samples. Returns None if they are there, else a sentence."""
        if self._text is None:
            return self._why
        try:
            self._text.result()
        except (sampling.NoSamples, OSError) as error:
            return str(error)
        return None


def _frequency_hz() -> int:
    with contextlib.suppress(OSError, ValueError):
        return max(1, min(FREQUENCY_HZ, int(_MOST_PER_SECOND.read_text())))
    return FREQUENCY_HZ
