"""Corrects a command line whose first word is not a verb, but a file or a misspelt verb."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from opspan.errors import UsageError
from opspan.files import exists, is_folder
from opspan.printable import path_text, shell_word


def correct(words: Sequence[str], verbs: Sequence[str], summary: click.Command | None) -> list[str]:
    """Puts the verb `summary` in front of the words. Raises a UsageError if the first word neither is nor looks like a
    trace, or if `summary` does not know all options."""
    import difflib

    word, rest = words[0], _pasted(words[1:])
    is_there = exists(word)
    close = [] if is_there else difflib.get_close_matches(word.lower(), verbs, 1, 0.6)
    if close:
        raise UsageError(f"there is no command {word!r}; did you mean `opspan {f'{close[0]} {rest}'.strip()}`?")
    if is_there and Path(word).suffix == ".py" and not is_folder(word):
        raise UsageError(
            f"{path_text(word)} is a script and not a command; did you mean "
            f"`opspan run --emit nvtx -o capture -- python {_pasted(words)}`?"
        )
    if not (is_there or "/" in word or Path(word).suffix):
        raise UsageError(f"there is no command {word!r}, and no file; `opspan --help` lists the commands")
    options = [option for option in (summary.params if summary else ()) if not getattr(option, "hidden", False)]
    known = {name for option in options for name in option.opts}
    if all(option.partition("=")[0] in known for option in words if re.match("--?[A-Za-z]", option)):
        return ["summary", *words]
    raise UsageError(f"{path_text(word)} is not a command; did you mean `opspan table {_pasted(words)}`?")


def _pasted(words: Sequence[str]) -> str:
    return " ".join(map(shell_word, words))
