"""This package has a module for the answer of each verb (subcommand), and one for each output of `opspan export`.

The name of the file to write selects the output. The module of an output has `write(analysis, path) -> list[str]`. This
function writes the whole output to `path`, which does not exist yet, and returns sentences on what was left out. A new
output needs a module here and a line in opspan/outputs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opspan.late_names import finder

if TYPE_CHECKING:
    from opspan.views.registry import check_output as check_output
    from opspan.views.registry import export as export
    from opspan.views.registry import output_for as output_for

__all__ = ["check_output", "export", "output_for"]


if not TYPE_CHECKING:  # hidden from type checkers: with `__getattr__` they would accept misspelt names
    __getattr__ = finder(__name__, {name: f"opspan.views.registry:{name}" for name in __all__})


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
