"""Reads traces into Tables. Readers do not nest ranges, do not pair calls with the GPU work that they start, and do not
import torch.

Each source has a module or folder here, and opspan/sources.py lists the sources. `read_file` reads a trace of any
source.
"""

from opspan.readers.registry import read_file, sniffed, source_for, trace_source, with_compile_log

__all__ = ["read_file", "sniffed", "source_for", "trace_source", "with_compile_log"]
