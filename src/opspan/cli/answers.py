"""What verbs that answer one question share: their options, loading, and printing in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.cli.loading import Progress, load, part_of_trace, trace_files
from opspan.cli.options import printing
from opspan.cli.printing import show, show_data

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.tables.window import Steps
    from opspan.views.answer import Answer


@dataclass(frozen=True)
class Asked:
    files: tuple[Path, ...]
    step: Steps | None  # what was given as --step
    by: str  # "": there is no choice


def answering(
    name: str,
    text: str,
    answer: Callable[[Analysed, Asked], Answer],
    by: Sequence[str] = (),
    *,
    is_whole: bool = False,
) -> click.Command:
    """A verb that prints what `answer` says of the traces. `by`: what its rows can be by, the default first.
    `is_whole`: nothing is to be said below it."""

    @click.command(name, help=text)
    @trace_files
    @part_of_trace
    @click.option(
        "--by",
        type=click.Choice(by or ("",)),
        default=by[0] if by else "",
        show_default=True,
        hidden=not by,
        help="One row for each of these.",
    )
    @printing
    def command(
        files: tuple[Path, ...],
        between: tuple[str, str] | None,
        step: str | None,
        by: str,
        limit: int | None,
        wide: bool,
        form: str,
    ) -> None:
        from opspan.tables.window import parsed_steps
        from opspan.text_columns import Layout, terminal
        from opspan.views import answer as answers
        from opspan.views.findings import finding_lines

        steps = None if step is None else parsed_steps(step)
        with Progress(len(files) + 1) as progress:
            found = load(files, progress, between, step)
            progress.step(f"looking at {found.tables.ranges.height:,} ranges")
            given = answer(found, Asked(files, steps, by))
            findings = [] if is_whole else finding_lines(found)
        if form == "json":
            show_data(answers.as_json(found, given, -1 if limit is None else limit))
        elif form == "csv":
            show_data(answers.as_csv(given, -1 if limit is None else limit))
            show("".join(f"{line}\n" for line in (*given.notes, *findings)), err=True)
        else:
            layout = Layout(whole_names=True) if wide else terminal()
            text = answers.as_text(given, answers.ROWS_OF_TEXT if limit is None else limit, layout)
            show(text + "".join(f"{line}\n" for line in ("", *findings) if findings))

    return command
