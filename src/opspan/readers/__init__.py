"""Reads traces into Tables, with a file or folder for each source. Readers do not nest, pair, or import torch.

`read_file` reads a file of any source; opspan/sources.py lists the sources.
"""

from opspan.readers.registry import read_file, sniffed, source_for, trace_source

__all__ = ["read_file", "sniffed", "source_for", "trace_source"]
