"""Writes the checks of `opspan doctor` as text, as JSON, and as a block of Markdown for a bug report.

The block may become public, so it contains no home folders and no user names in paths.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import pwd
import re
from collections.abc import Sequence
from typing import Any

from opspan.app.doctor import Check
from opspan.printable import printable
from opspan.version import VERSION

_HOMES = re.compile(r"/(home|Users)/[^/\s:;,()'\"]+")  # matches home folders on most systems


def as_text(check: Check) -> str:
    """Returns a line for the check, and a second line if something can be repaired or installed."""
    lines = f"{check.name:<19} {check.state:<8} {check.found}\n"
    if check.todo and check.state != "ok":
        lines += f"{'':<28} {'fix' if check.state == 'WRONG' else 'to have it'}: {check.todo}\n"
    return lines


def as_object(checks: Sequence[Check]) -> dict[str, Any]:
    """Returns the object that `opspan doctor --json` prints."""
    fields = ("name", "state", "found", "todo")
    return {
        "opspan": VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "checks": [{field: getattr(check, field) for field in fields} for check in checks],
    }


def as_markdown(checks: Sequence[Check]) -> str:
    """Returns the checks as a fenced block of text."""
    head = f"opspan {VERSION}, Python {platform.python_version()}, {platform.platform()}"
    lines = [head, "", *(line for check in checks for line in as_text(check).splitlines())]
    text = without_user("\n".join(printable(line) for line in lines))
    # A fence has to be longer than any run of backticks inside.
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}\n"


def without_user(text: str) -> str:
    """Replaces this user's home folders by ~. In paths, replaces the names of this user and of other home folders by
    USER."""
    for home in sorted(_home_folders(), key=len, reverse=True):
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    text = _HOMES.sub(r"/\1/USER", text)
    for name in _user_names():
        text = re.sub(rf"(?<=[/_-]){re.escape(name)}(?=[/_-]|$|[\s:;,()'\"])", "USER", text, flags=re.MULTILINE)
    return text


def _home_folders() -> set[str]:
    folders = {os.path.expanduser("~")}  # noqa: PTH111  Path.home() raises an error if there is none
    with contextlib.suppress(KeyError):  # the user id has no name, which is common in containers
        folders.add(pwd.getpwuid(os.getuid()).pw_dir)
    folders |= {os.path.realpath(folder) for folder in folders}
    return {folder.rstrip("/") for folder in folders} - {"", "~"}


def _user_names() -> set[str]:
    """Returns the names of this user. Leaves out "root", because that name identifies nobody and is in many paths."""
    names = set()
    with contextlib.suppress(KeyError, OSError):  # the user id has no name
        names.add(getpass.getuser())  # returns the name from the environment, if it is there
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    return names - {"root", ""}
