"""What a trace becomes for others to look at: one file an output, chosen by the name it is written to.

Such a file has `write(found, path) -> list[str]`: it writes the whole output to `path`, which is not there yet, and
says in sentences what it had to leave out. A new one is a file here and a line in opspan/outputs.py. What the verb
`table` prints is table.py's.
"""

from opspan.views.registry import check_output, export, output_for

__all__ = ["check_output", "export", "output_for"]
