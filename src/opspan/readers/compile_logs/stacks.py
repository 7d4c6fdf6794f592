"""Reads stacks of Python functions as the compiler writes them. Chooses one line of the program for each stack.

File "model.py", line 9, in forward
  y = self.fc(x)
File "site-packages/torch/nn/modules/linear.py", line 125, in forward
  return F.linear(input, self.weight, self.bias)
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "([^"\n]{1,4096})", line (\d{1,9})(?:, in ([^\n]{1,1024}))?$', re.MULTILINE)
_TORCH = re.compile(r"(?:^|[/\\])torch[/\\]")  # matches a file of torch itself
_DEEPEST = 200  # a stack keeps at most this many of its innermost frames


class Place(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str | None = None


class Stack(NamedTuple):
    place: Place  # the innermost line outside of torch's files, or else the innermost line
    innermost: Place
    text: str


def stack_of(text: str) -> Stack | None:
    """Returns the stack, or None if the text has no frame."""
    if "\n" not in text:
        text = text.replace("\\n", "\n")  # some logs have line breaks escaped twice
    places = [Place(file, int(line), function or None) for file, line, function in _FRAME.findall(text)][-_DEEPEST:]
    if not places:
        return None
    own = [place for place in places if not is_of_torch(place.file)]
    lines = "\n".join(f"{place.file}({place.line}): {place.function or '?'}" for place in places)
    return Stack((own or places)[-1], places[-1], lines)


def is_of_torch(file: str) -> bool:
    return _TORCH.search(file) is not None
