"""Turns mangled names of C++ functions into the names in the source, and into short names.

_Z3addIfEvPT_  ->  void add<float>(float*)  ->  add
"""

from __future__ import annotations

import re

from opspan import native

_OPENS, _CLOSES = "<([{", ">)]}"
_AFTER_ARGUMENTS = re.compile(r"(?: (?:const|volatile)| ?&{1,2})+$")
_OPERATOR = re.compile(r"(?:(?<=::)|(?<= )|^)operator(?![A-Za-z0-9_])")


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


def qualified_name(name: str) -> str:
    """Returns the function's name with its namespaces and template arguments, without return type and arguments."""
    text = re.sub(r" ?\[(?:clone|abi) [^\]]*\]$", "", name)
    text = _AFTER_ARGUMENTS.sub("", text)
    if not text.endswith(")") or (start := _opening(text)) <= 0:
        return name
    text = text[:start]
    depth = 0
    begin = 0
    for place, char in enumerate(text):
        if depth == 0 and _OPERATOR.match(text, place):  # the rest is the operator, whose brackets do not pair
            break
        depth += (char in _OPENS) - (char in _CLOSES)
        if depth == 0 and char == " ":
            begin = place + 1
    # A function that returns a pointer to a function has its own name inside the brackets of the return type.
    own = text[begin:]
    return name if not own or own.startswith("(*") else own


def _opening(text: str) -> int:
    """Returns the index of the bracket that the last bracket of the text closes; -1 if there is none."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in _CLOSES) - (text[place] in _OPENS)
        if depth == 0:
            return place
    return -1
