"""Foreign text where a person reads it: nothing that moves a terminal's cursor, and no line without an end.

Names of ranges, tables, files and machines are whatever a program made them. Whatever opspan says of them to a person
(errors, warnings, issues, tables, what a verb prints) has gone through here; data keeps them as they are.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

MOST_NAMES = 20
LONGEST_NAME = 100
LONGEST_LINE = 10_000
_SAYING_SO = 40


def printable(text: str) -> str:
    """The text with control characters, marks of direction and whatever else is not seen written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def as_utf8(text: str) -> str:
    """The text as columns and JSON can have it. Names of files may be any bytes, each half of a pair then."""
    return text.encode("utf-8", "backslashreplace").decode()


def printable_lines(text: str) -> str:
    """The same of a text that is several lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def plural(count: int, one: str, several: str | None = None) -> str:
    """'1 issue', '1,234 issues'. `several`: what more than one are called, where that is not with an s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def shell_word(text: str) -> str:
    """The text as one pastes it into a shell: a word that means it and shows it, whatever is in it.

    `'a b'` as shlex has it; `$'a\\nb'` where something in it is not seen, or would not come through a line of text.
    """
    if text.isprintable() and "  " not in text:
        return shlex.quote(text)
    return f"$'{''.join(map(_in_shell, text))}'"


def _in_shell(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if char in _OF_SHELLS:
        return _OF_SHELLS[char]
    if char.isprintable() and char != " ":
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


_OF_SHELLS = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def shell_path(path: str | os.PathLike[str]) -> str:
    """The same of a path, which no command takes for an option."""
    text = os.fspath(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)


def python_text(path: str | os.PathLike[str]) -> str:
    """The same of a path as Python has it, between quotes."""
    text = repr(os.fspath(path))
    return text.replace(" ", r"\x20") if "  " in text else text


def path_text(path: object) -> str:
    """A path in a sentence: as it is, or as one pastes it where that would not be read, or be two lines."""
    text = str(path)
    return text if text.isprintable() and "  " not in text else shell_word(text)


def said_of(text: str, path: os.PathLike[str], shown: str, first: str) -> str:
    """The text with `shown` in place of a temporary path. A command of another program, which needs a file, has the
    name alone, and says what is to be done first: "fetch the file, then `gunzip -k run.json.gz`"."""
    typed = shell_path(path)

    def of_command(found: re.Match[str]) -> str:
        if found[0].startswith("`opspan."):
            return found[0].replace(python_text(path), python_text(shown))
        if typed not in found[0]:
            return found[0]
        if found[0].startswith("`opspan "):
            return found[0].replace(typed, shell_path(shown))
        return f"{first}, then {found[0].replace(typed, shell_path(os.path.basename(path)))}"  # noqa: PTH119

    text = re.sub("`[^`]*`", of_command, text)
    return text.replace(typed, path_text(shown)).replace(os.fspath(path), path_text(shown))


def shortened(text: str, most: int = LONGEST_NAME) -> str:
    """About as long as that at most; what was left out is counted."""
    if len(text) <= most + _SAYING_SO:  # as long as what would be put there instead: also where it stands already
        return text
    return f"{text[:most]}... ({len(text) - most:,} characters more)"


def listed(names: Sequence[object], most: int = MOST_NAMES, longest: int = LONGEST_NAME) -> str:
    """The first of them, none longer than that, and how many more there are."""
    first = ", ".join(shortened(str(name), longest) for name in names[:most])
    return f"{first} and {len(names) - most:,} more" if len(names) > most else first


def listed_counts(counts: Mapping[str, int]) -> str:
    """`first 1,234, second 5`. Where there are too many for a line, those that count most."""
    names = list(counts) if len(counts) <= MOST_NAMES else sorted(counts, key=counts.__getitem__, reverse=True)
    first = ", ".join(f"{shortened(name)} {counts[name]:,}" for name in names[:MOST_NAMES])
    return f"{first} and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else first
