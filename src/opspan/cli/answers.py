"""What verbs that answer one question share: their options, loading, and printing in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opspan.cli.loading import Progress, load, part_of_trace, trace_files, two_files
from opspan.cli.options import printing
from opspan.cli.printing import show, show_data

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.tables.window import Steps
    from opspan.views.answer import Answer


# Of the files and the verb's own options: the files of each run.
Sides = Callable[[tuple[Path, ...], Mapping[str, Any]], Sequence[tuple[Path, ...]]]


@dataclass(frozen=True)
class Asked:
    files: tuple[Path, ...]
    step: Steps | None  # what was given as --step
    by: str  # "": there is no choice
    other: Analysed  # the second run, of a verb that compares two; else the same
    more: Mapping[str, Any]  # the verb's own options


def answering(
    name: str,
    text: str,
    answer: Callable[[Analysed, Asked], Answer],
    by: Sequence[str] = (),
    *,
    is_whole: bool = False,
    sides: Sides | None = None,
    options: Sequence[click.Option] = (),
) -> click.Command:
    """A verb that prints what `answer` says of the traces. `by`: what its rows can be by, the default first.
    `is_whole`: nothing is to be said below it; `sides`: which files are which run, of a verb that compares; `options`:
    more of its own."""

    @click.command(name, help=text)
    @(two_files if sides else trace_files)
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
        **more: Any,
    ) -> int:
        from opspan.tables.window import parsed_steps
        from opspan.text_columns import Layout, terminal
        from opspan.views import answer as answers
        from opspan.views.footer import footer_lines

        steps = None if step is None else parsed_steps(step)
        several = sides(files, more) if sides else [files]
        titles = ("A", "B") if len(several) > 1 else ("",)
        with Progress(len(files) + 1) as progress:
            # A verb that compares takes the steps from the whole run.
            part = None if sides else step
            loaded = {side: load(side, progress, between, part) for side in dict.fromkeys(several)}
            runs = [loaded[side] for side in several]
            progress.step(f"looking at {sum(run.tables.ranges.height for run in loaded.values()):,} ranges")
            given = answer(runs[0], Asked(files, steps, by, runs[-1], more))
            named = zip(runs, titles, strict=True)
            below = [] if is_whole else [line for run, title in named for line in footer_lines(run, title)]
        if form == "json":
            show_data(answers.as_json(runs, given, -1 if limit is None else limit))
        elif form == "csv":
            show_data(answers.as_csv(given, -1 if limit is None else limit))
            show("".join(f"{line}\n" for line in (*given.notes, *below)), err=True)
        else:
            layout = Layout(whole_names=True) if wide else terminal()
            text = answers.as_text(given, answers.ROWS_OF_TEXT if limit is None else limit, layout)
            show(text + "".join(f"{line}\n" for line in ("", *layout.lines(below)) if below))
        return given.exit_code

    command.params.extend(options)
    return command
