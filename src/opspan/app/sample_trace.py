"""Copies opspan's sample: traces of two ranks of a training job, in the format of torch.profiler.

The job did not run on GPUs. The simulator of opspan's tests (tests/builders/sample.py) made the traces, with faults
that the findings name.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from opspan.errors import WriteError

SAMPLE = Path(__file__).with_name("sample")


def copy_sample(folder: Path) -> list[Path]:
    """Copies the traces into the folder. Returns the copies, in the order of the ranks."""
    try:
        return [Path(shutil.copyfile(path, folder / path.name)) for path in sorted(SAMPLE.glob("rank*.json.gz"))]
    except OSError as error:
        raise WriteError(f"{error.filename} cannot be copied: {error.strerror}") from error
