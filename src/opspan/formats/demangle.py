"""Names of C++ functions as compilers write them -> as a person wrote them.

_Z3addIfEvPT_  ->  void add<float>(float*)  ->  add
"""

from __future__ import annotations

import re

from opspan import native

_OPENS, _CLOSES = "<([{", ">)]}"


def is_mangled(name: str) -> bool:
    return name.startswith("_Z")


def demangled(name: str) -> str:
    """The name as its source has it; one that is not mangled, or cannot be taken apart, as it is."""
    return native.demangled(name) if is_mangled(name) else name


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
    own = text[begin:] or name
    # A > that compares, in what is returned, leaves a part of that: std::enable_if<(8>0), void>::type f.
    return own if "<" in own or "(" in own else own.rpartition(" ")[2].rpartition("::")[2]


def _opening(text: str) -> int:
    """Where the last bracket of the text was opened; -1: nowhere."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in _CLOSES) - (text[place] in _OPENS)
        if depth == 0:
            return place
    return -1
