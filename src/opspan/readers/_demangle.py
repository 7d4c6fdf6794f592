"""Names of C++ functions as compilers write them -> as a person wrote them, by libopspan_sweep.so.

_Z3addIfEvPT_  ->  void add<float>(float*)  ->  add
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import Any

import opspan
from opspan.errors import OpspanError

LIBRARY = "libopspan_sweep.so"
# How much longer than its mangled form a name may be; a hostile one stands for more text than there is memory.
SPARE_BYTES, GROWTH = 1024, 16

_OPENS, _CLOSES = "<([{", ">)]}"


@functools.cache
def _load() -> Any:
    chosen = os.environ.get("OPSPAN_LIB_DIR")
    folders = [Path(chosen)] if chosen else [Path(root) / "lib" for root in opspan.__path__]
    path = next((folder / LIBRARY for folder in folders if (folder / LIBRARY).is_file()), folders[0] / LIBRARY)
    try:
        function = ctypes.CDLL(str(path)).opspan_demangle
    except (OSError, AttributeError) as error:  # not there; not a library; an older one
        raise OpspanError(f"cannot open {path} ({error}): reinstall opspan") from error
    function.restype = ctypes.c_int64
    function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    return function


def is_mangled(name: str) -> bool:
    return name.startswith("_Z")


def demangled(name: str) -> str:
    """The name as its source has it; one that is not mangled, or cannot be taken apart, as it is."""
    return _taken_apart(name) if is_mangled(name) else name


def demangled_type(name: str) -> str:
    """The same for the name of a type, which has no _Z before it: N5torch8autograd9GraphRootE."""
    return _taken_apart(name)


def _taken_apart(name: str) -> str:
    if "\0" in name:
        return name
    mangled = name.encode()
    room = SPARE_BYTES + GROWTH * len(mangled)
    buffer = ctypes.create_string_buffer(room)
    size = _load()(mangled, buffer, room)
    return buffer.raw[:size].decode("utf-8", "replace") if size > 0 else name


def short_name(name: str) -> str:
    """The function's own name: without what it returns, its namespaces, its templates' arguments and its own.

    A text that is no such name is its own short name.
    """
    # `(anonymous namespace)::` is the one bracket that does not end a name.
    text = name.replace("(anonymous namespace)::", "").removesuffix(" const")
    text = re.sub(r" ?\[clone [^\]]*\]$", "", text)
    for last in (")", ">"):  # its arguments, then those of its templates
        if text.endswith(last) and (start := _opening(text)) > 0:
            text = text[:start]
    begin = 0
    depth = 0
    for place, char in enumerate(text):
        depth += (char in _OPENS) - (char in _CLOSES)
        if depth == 0 and (char == " " or text.startswith("::", place)):
            begin = place + (1 if char == " " else 2)
    return text[begin:] or name


def _opening(text: str) -> int:
    """Where the last bracket of the text was opened; -1: nowhere."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in _CLOSES) - (text[place] in _OPENS)
        if depth == 0:
            return place
    return -1
