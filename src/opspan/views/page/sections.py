"""The sections of a page, in order. Each section has a module of the same name here, and another in
src/page/sections. Most traces have no samples of processors, so only pages of traces with samples have the section
"host"."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from opspan.views.page.section import Section, Subject

NAMES = ("overview", "operators", "modules", "kernels", "host", "timeline", "memory", "distributed", "compare")


def is_shown(name: str, subject: Subject) -> bool:
    return name != "host" or subject.analysis.tables.samples.height > 0


def section(name: str, subject: Subject) -> Section:
    make: Callable[[Subject], Section] = import_module(f"opspan.views.page.{name}").section
    return make(subject)
