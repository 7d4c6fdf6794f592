"""What a trace is exported to: one module for each output, which is chosen by the name of the file to write.

Such a module has `write(found, path) -> list[str]`: it writes the whole output to `path`, which does not exist yet, and
returns sentences on what it had to leave out. A new output needs a module here and a line in opspan/outputs.py. What
the verb `table` prints is made in table.py.
"""

from opspan.views.registry import check_output, export, output_for

__all__ = ["check_output", "export", "output_for"]
