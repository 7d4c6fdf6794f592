"""Defines VERSION, the version of opspan that is installed."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("opspan")
