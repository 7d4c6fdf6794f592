"""One file or folder per source -> Tables. A reader translates: no nesting, no pairing, no torch.

`read_file` reads any of them; opspan/sources.py lists them.
"""

from opspan.readers.registry import read_file, sniffed, source_for, trace_source

__all__ = ["read_file", "sniffed", "source_for", "trace_source"]
