"""Reads what a capture states about its process: threads of torch, usable processors, and the start of the process.

facts_of(header) -> options of the file's metadata. Each is a dict by process id, because a rank may have several
    processes
common_facts(parts) -> these options of all files of a rank
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from opspan.readers.capture.file import Header
from opspan.tables import Metadata
from opspan.tables.metadata import FACTS, PROCESS_AGE, PROCESSOR_LIST, TORCH_IMPORT, TORCH_THREADS, USABLE_PROCESSORS

_MOST = 10**6  # threads and processors; more is damage
_NUMBER = re.compile("[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,4})?")
_LIST = re.compile("[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")


def facts_of(header: Header) -> dict[str, dict[str, Any]]:
    texts = header.environment
    values: dict[str, Any] = {}
    if (threads := _number(texts.get("TORCH_THREADS"))) and threads <= _MOST:
        values[TORCH_THREADS] = threads
    if _DECIMAL.fullmatch(text := texts.get("USABLE_PROCESSORS", "")) and (usable := float(text)) > 0:
        values[USABLE_PROCESSORS] = int(usable) if usable == int(usable) else usable
    if _LIST.fullmatch(text := texts.get("PROCESSOR_LIST", "")):
        values[PROCESSOR_LIST] = text
    began = _number(texts.get("PROCESS_BEGAN_NS"))
    # The first file of a rolling recording may be gone, and with it the first ops.
    if began is not None and began <= header.open_monotonic_ns and not (header.forked or header.segment):
        values[PROCESS_AGE] = header.open_monotonic_ns - began
        begin, _, end = texts.get("TORCH_IMPORT_NS", "").partition("-")
        times = _number(begin), _number(end)
        if times[0] is not None and times[1] is not None and began <= times[0] <= times[1]:
            values[TORCH_IMPORT] = [times[0] - began, times[1] - began]
    return {name: {str(header.pid): value} for name, value in values.items()}


def common_facts(parts: Sequence[Metadata]) -> dict[str, dict[str, Any]]:
    """Leaves out the facts about a process of which its files state different ones."""
    facts: dict[str, dict[str, Any]] = {}
    differs: set[tuple[str, str]] = set()
    for part in parts:
        for name in FACTS:
            stated = part.options.get(name)
            for pid, value in stated.items() if isinstance(stated, Mapping) else ():
                if facts.setdefault(name, {}).setdefault(pid, value) != value:
                    differs.add((name, pid))
    for name, pid in differs:
        del facts[name][pid]
    return {name: values for name, values in facts.items() if values}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
