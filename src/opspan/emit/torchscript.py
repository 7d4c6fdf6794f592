"""TorchScript compiles these functions in place of annotate and record_function. They use torch's own range.

TorchScript reads the source below. It knows neither our classes nor type annotations as text, so `from __future__
import annotations` is missing here. This module is imported when a program scripts a function that uses annotate or
record_function.
"""

from typing import Any, Optional

from torch.profiler import record_function as torchs


def annotate(name: str, color: Any = None, category: Any = None, payload: Any = None) -> torchs:
    return torchs(name)


def record_function(name: str, args: Optional[str] = None) -> torchs:  # noqa: UP045  # TorchScript knows no `|`
    return torchs(name, args)
