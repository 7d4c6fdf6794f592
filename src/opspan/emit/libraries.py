"""Where opspan's native files lie. Not who opens them: that is `sinks` and `observer`."""

from __future__ import annotations

import os
from pathlib import Path

import opspan

SINKS = "libopspan_sinks.so"
COLLECTORS = "libopspan_collectors.so"
OBSERVER_SOURCES = ("observer.cpp", "observer.h", "sinks.h")


def folder() -> Path:
    """The installed package's `lib`, or OPSPAN_LIB_DIR: for those who build opspan's native part by hand."""
    chosen = os.environ.get("OPSPAN_LIB_DIR")
    if chosen:
        return Path(chosen)
    # __path__ rather than __file__: an editable install spreads the package over the sources and the build's files.
    for root in opspan.__path__:
        if (Path(root) / "lib" / SINKS).is_file():
            return Path(root) / "lib"
    return Path(opspan.__path__[0]) / "lib"


def sinks() -> Path:
    return folder() / SINKS


def collectors() -> Path:
    return folder() / COLLECTORS


def observer_sources() -> Path:
    return folder() / "observer"
