"""What verbs that answer one question share: their options, loading, and printing in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opspan.cli.loading import Progress, load, part_of_trace, trace_files, two_files
from opspan.cli.options import printing
from opspan.cli.printing import show, show_data
from opspan.errors import UsageError

if TYPE_CHECKING:
    from opspan.analysis import Analysed
    from opspan.tables.window import Steps
    from opspan.views.answer import Answer


@dataclass(frozen=True)
class Asked:
    files: tuple[Path, ...]
    step: Steps | None  # what was given as --step
    by: str  # "": there is no choice
    other: Analysed | None = None  # the second run, of a verb that compares two
    more: Mapping[str, Any] = field(default_factory=dict)  # the verb's own options


def answering(
    name: str,
    text: str,
    answer: Callable[[Analysed, Asked], Answer],
    by: Sequence[str] = (),
    *,
    is_whole: bool = False,
    is_pair: bool = False,
    options: Sequence[click.Option] = (),
) -> click.Command:
    """A verb that prints what `answer` says of the traces. `by`: what its rows can be by, the default first.
    `is_whole`: nothing is to be said below it; `is_pair`: its two files are two runs; `options`: more of its own."""

    @click.command(name, help=text)
    @(two_files if is_pair else trace_files)
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
        if is_pair and len(files) != 2:
            said = "1 file" if len(files) == 1 else f"{len(files)} files"
            raise UsageError(f"opspan {name} compares two files, A with B, and got {said}")
        with Progress(len(files) + 1) as progress:
            sides = [files[:1], files[1:]] if is_pair else [files]
            runs = [load(side, progress, between, step) for side in sides]
            progress.step(f"looking at {sum(run.tables.ranges.height for run in runs):,} ranges")
            given = answer(runs[0], Asked(files, steps, by, runs[1] if is_pair else None, more))
            named = zip(runs, ("A", "B") if is_pair else ("",), strict=True)
            below = [] if is_whole else [line for run, title in named for line in footer_lines(run, title)]
        if form == "json":
            show_data(answers.as_json(runs, given, -1 if limit is None else limit))
        elif form == "csv":
            show_data(answers.as_csv(given, -1 if limit is None else limit))
            show("".join(f"{line}\n" for line in (*given.notes, *below)), err=True)
        else:
            layout = Layout(whole_names=True) if wide else terminal()
            text = answers.as_text(given, answers.ROWS_OF_TEXT if limit is None else limit, layout)
            show(text + "".join(f"{line}\n" for line in ("", *below) if below))
        return given.exit_code

    command.params.extend(options)
    return command
