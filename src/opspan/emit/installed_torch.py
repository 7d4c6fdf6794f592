"""Tells which torch is installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opspan.errors import TorchUnsupported

OLDEST: Final = (2, 4)


@dataclass(frozen=True)
class Torch:
    """The properties of a torch that decide whether an observer fits it."""

    version: str
    git: str
    cxx11_abi: bool
    debug: bool
    root: Path  # the package's folder, with include/ and lib/

    @classmethod
    def here(cls) -> Torch:
        try:
            import torch
        except (ImportError, OSError) as error:  # OSError: a library that torch needs is missing
            raise TorchUnsupported(f"torch cannot be imported ({error}): pip install torch") from error
        here = cls(
            version=str(torch.__version__),
            git=str(torch.version.git_version),
            cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
            debug=bool(torch.version.debug),
            root=Path(torch.__file__).parent,
        )
        if here.number < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise TorchUnsupported(f"torch {here.version} found, opspan needs {oldest} or newer: pip install -U torch")
        return here

    @property
    def number(self) -> tuple[int, ...]:
        match = re.match(r"(\d+)\.(\d+)", self.version)
        if match is None:
            raise TorchUnsupported(f"torch says that its version is {self.version!r}: that is no number")
        return tuple(map(int, match.groups()))
