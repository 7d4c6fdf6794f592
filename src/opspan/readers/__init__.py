"""Reads traces into Tables. Readers do not import torch. The analysis, not a reader, nests ranges and pairs calls with
the GPU work that the calls start.

Each source has a module or folder here, and opspan/sources.py lists the sources. `read_file` reads a trace of any
source.
"""

from opspan.readers.registry import (
    cut_of_file,
    read_file,
    reads_parts,
    sniffed,
    source_for,
    trace_source,
    with_compile_log,
)

__all__ = ["cut_of_file", "read_file", "reads_parts", "sniffed", "source_for", "trace_source", "with_compile_log"]
