"""Defines what `opspan report` and `opspan view` share: the options of a page, reading the page's files, and opening
the page in the browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from opspan.cli.loading import FILE_TO_READ, PartToRead, Progress, all_at_once, expanded, how_to_read, load
from opspan.cli.printing import show
from opspan.errors import UsageError
from opspan.printable import path_text

if TYPE_CHECKING:
    from opspan.addresses import File
    from opspan.views.page.section import Subject

F = TypeVar("F", bound=Callable[..., Any])


def page_options(function: F) -> F:
    """Adds the options --against and --editor, and those that choose the part of the trace to read. The function gets
    their values and the files as `pages`."""

    @wraps(function)
    def run(
        files: Sequence[File],
        other_files: Sequence[File],
        editor: str | None,
        reading: PartToRead,
        **more: Any,
    ) -> Any:
        return function(pages=PageFiles(files, other_files, editor, reading), **more)

    against = click.option(
        "--against",
        "other_files",
        metavar="B",
        multiple=True,
        type=FILE_TO_READ,
        help="The earlier run to compare with; give it once for each rank.",
    )
    editor = click.option(
        "--editor",
        metavar="ADDRESS",
        default=None,
        help="How the page opens a source line: an address with {file} and {line} in it. Default: "
        "vscode://file/{file}:{line}",
    )
    return cast("F", against(editor(all_at_once(how_to_read(run)))))


def open_option(function: F) -> F:
    """Adds the option --open."""
    return click.option("--open", "is_opened", is_flag=True, help="Open the page in the browser.")(function)


class PageFiles:
    """The files of a page's run and of the run to compare with, and the part of the trace to read."""

    def __init__(
        self,
        files: Sequence[File],
        other_files: Sequence[File],
        editor: str | None,
        reading: PartToRead,
    ) -> None:
        from opspan.views.page.section import EDITOR

        if editor is not None and not ("{file}" in editor and "://" in editor):
            raise UsageError(
                f"--editor is an address with {{file}} and {{line}} in it, such as {EDITOR}, and not {editor!r}"
            )
        self._editor = editor or EDITOR
        self._reading = reading
        self._files, self._other_files = expanded(files), expanded(other_files)
        self.all = [*self._files, *self._other_files]
        self._named = (*files, *other_files)

    def read(self, progress: Progress) -> Subject:
        from opspan.views.page.section import Subject

        analysis = load(self._files, progress, self._reading, named=self._named)
        other = load(self._other_files, progress, named=self._named) if self._other_files else None
        return Subject(analysis, self._files, other, self._other_files, self._editor)


def open_page(page: Path) -> None:
    """Opens a file in the browser. If that fails, prints the reason and the file's path."""
    from opspan.app.browser import open_address

    reason = open_address(page.resolve().as_uri())
    if reason is None:
        show("Opened it in the browser\n")
    else:
        show(f"No browser was opened, as {reason} (`opspan view` serves a page): {path_text(page.resolve())}\n")
