"""TorchScript compiles the function below in place of annotate. This function uses torch's own range.

TorchScript understands neither opspan's classes nor type annotations as text. So `from __future__ import annotations`
is missing here. This module is imported when a program scripts a function that uses annotate.
"""

from typing import Any

from torch.profiler import record_function as torchs


def annotate(name: str, color: Any = None, category: Any = None, payload: Any = None) -> torchs:
    return torchs(name)
