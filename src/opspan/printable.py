"""Makes text from other sources safe to show. Control characters are replaced, so that they cannot affect the terminal.
Long lines are cut.

The names of ranges, tables, files and machines may be any text. So all texts for people (errors, warnings, issues,
tables, the output of commands) pass through these functions. Data for programs keeps the names unchanged.
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
    """Returns the text with control characters, direction marks and other invisible characters written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def as_utf8(text: str) -> str:
    """Returns text that columns and JSON can hold. The name of a file may have bytes that are not UTF-8. Python turns
    these bytes into surrogates, which this function escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def printable_lines(text: str) -> str:
    """Makes each line of the text printable, and keeps the line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))


def plural(count: int, one: str, several: str | None = None) -> str:
    """Returns a count with its noun, such as '1 issue' or '1,234 issues'. `several` is the plural, if it is
    irregular."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def shell_word(text: str) -> str:
    """Returns the text quoted as a word for a shell. People can read the word, and the shell reads exactly this text.

    The word is `'a b'`, as shlex writes it, or `$'a\\nb'` if a character is invisible or would break the line.
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
    """Returns a path quoted as a word for a shell. The word never begins with -, so it is not taken for an option."""
    text = os.fspath(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)


def python_text(path: str | os.PathLike[str]) -> str:
    """Returns a path as a Python string in quotes."""
    text = repr(os.fspath(path))
    return text.replace(" ", r"\x20") if "  " in text else text


def path_text(path: object) -> str:
    """Returns a path for use in a sentence, quoted as for a shell if it would be unreadable or would break the line."""
    text = str(path)
    return text if text.isprintable() and "  " not in text else shell_word(text)


def replace_path(text: str, path: os.PathLike[str], shown: str, first: str) -> str:
    """Returns the text with `shown` (an address) in place of the path of a temporary file. But the text may contain
    commands between backticks. Programs other than opspan cannot open an address. So their commands get only the file's
    name, and `first` is put before the command: "fetch the file, then `gunzip -k run.json.gz`"."""
    typed = shell_path(path)

    def of_command(match: re.Match[str]) -> str:
        if match[0].startswith("`opspan."):
            return match[0].replace(python_text(path), python_text(shown))
        if typed not in match[0]:
            return match[0]
        if match[0].startswith("`opspan "):
            return match[0].replace(typed, shell_path(shown))
        return f"{first}, then {match[0].replace(typed, shell_path(os.path.basename(path)))}"  # noqa: PTH119

    text = re.sub("`[^`]*`", of_command, text)
    return text.replace(typed, path_text(shown)).replace(os.fspath(path), path_text(shown))


def shortened(text: str, most: int = LONGEST_NAME) -> str:
    """Returns about `most` characters of the text, and a note with the number of characters left out."""
    # A text that is only a little longer stays unchanged, because the note would be as long as the rest of the text.
    # For this reason, shortening a text twice is the same as shortening it once.
    if len(text) <= most + _SAYING_SO:
        return text
    return f"{text[:most]}... ({len(text) - most:,} characters more)"


def listed(names: Sequence[object], most: int = MOST_NAMES, longest: int = LONGEST_NAME) -> str:
    """Returns a text with the first names, each of them shortened, and the number of names that were left out."""
    first = ", ".join(shortened(str(name), longest) for name in names[:most])
    return f"{first} and {len(names) - most:,} more" if len(names) > most else first


def listed_counts(counts: Mapping[str, int]) -> str:
    """Returns a text such as `first 1,234, second 5`. If there are many names, it has those with the highest counts."""
    names = list(counts) if len(counts) <= MOST_NAMES else sorted(counts, key=counts.__getitem__, reverse=True)
    first = ", ".join(f"{shortened(name)} {counts[name]:,}" for name in names[:MOST_NAMES])
    return f"{first} and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else first
