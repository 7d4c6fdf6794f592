"""What a trace becomes for others to look at: one file an output, chosen by the name it is written to.

A view is a module with `write(found, path) -> list[str]`: it writes the whole output to `path`, which is not there yet,
and says in sentences what it had to leave out. A new one is a file and a line in the registry. table.py is what the
verb `table` prints.
"""

from opspan.views.registry import VIEWS, View, check_output, export, view_for

__all__ = ["VIEWS", "View", "check_output", "export", "view_for"]
