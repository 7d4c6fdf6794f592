"""Turns mangled names of C++ functions into the names in the source, and into short names.

_Z3addIfEvPT_  ->  void add<float>(float*)  ->  add
"""

from __future__ import annotations

import re

from opspan import native

_OPENS, _CLOSES = "<([{", ">)]}"


def is_mangled(name: str) -> bool:
    return name.startswith("_Z")


def demangled(name: str) -> str:
    """Returns the name as in its source. A name that is not mangled, or cannot be demangled, is returned unchanged."""
    return native.demangled(name) if is_mangled(name) else name


def short_name(name: str) -> str:
    """Returns the function's own name, without its return type, namespaces, template arguments and arguments.

    A text that is not a function's name is returned unchanged.
    """
    # All brackets except `(anonymous namespace)::` follow a name.
    text = name.replace("(anonymous namespace)::", "").removesuffix(" const")
    text = re.sub(r" ?\[clone [^\]]*\]$", "", text)
    for last in (")", ">"):  # removes the arguments of the function, then those of the template
        if text.endswith(last) and (start := _opening(text)) > 0:
            text = text[:start]
    begin = 0
    depth = 0
    for place, char in enumerate(text):
        depth += (char in _OPENS) - (char in _CLOSES)
        if depth == 0 and (char == " " or text.startswith("::", place)):
            begin = place + (1 if char == " " else 2)
    own = text[begin:] or name
    # In a return type such as std::enable_if<(8>0), void>::type, the first > is an operator, but counts as a bracket.
    # Then `own` still contains a part of the type.
    return own if "<" in own or "(" in own else own.rpartition(" ")[2].rpartition("::")[2]


def _opening(text: str) -> int:
    """Returns the index of the bracket that the last bracket of the text closes; -1 if there is none."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in _CLOSES) - (text[place] in _OPENS)
        if depth == 0:
            return place
    return -1
