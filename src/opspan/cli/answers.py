"""What verbs that answer one question share: their options, loading, and printing in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from opspan.addresses import File
from opspan.cli.loading import (
    Progress,
    expanded,
    in_processes,
    load,
    many,
    not_named,
    part_of_trace,
    trace_files,
    two_files,
)
from opspan.cli.options import printing
from opspan.cli.printing import show, show_data
from opspan.errors import UsageError
from opspan.printable import plural

if TYPE_CHECKING:
    from opspan.analysis import Analysis
    from opspan.many.ranks import Ranks
    from opspan.tables.window import Steps
    from opspan.views.answer import Answer
    from opspan.views.footer import Run


F = TypeVar("F", bound=Callable[..., Any])
# Takes the files and the verb's own options, and returns the files of each run.
Sides = Callable[[tuple[File, ...], Mapping[str, Any]], Sequence[tuple[File, ...]]]


@dataclass(frozen=True)
class Asked:
    files: tuple[File, ...]
    step: Steps | None  # what was given as --step
    by: str  # "": there is no choice
    other: Analysis | Ranks | None  # the second run, of a verb that compares two
    more: Mapping[str, Any]  # the verb's own options
    done: Callable[[int, int], None]  # to be told of how many files, and bytes, were read


def answering(
    name: str,
    text: str,
    asks: Callable[[Asked], dict[str, Any]] = lambda asked: {"by": asked.by},
    by: Sequence[str] = (),
    *,
    answer: Callable[[Analysis | Ranks, Asked], Answer] | None = None,
    is_whole: bool = False,
    sides: Sides | None = None,
    needs_all: Callable[[Mapping[str, Any]], str | None] = lambda _more: None,
    options: Sequence[click.Option] = (),
) -> click.Command:
    """A verb that prints the answer of its name in views/ to what it `asks`, or what `answer` says of the whole traces.
    `by`: what its rows can be by, the default first. `is_whole`: nothing is to be said below it; `sides`: which files
    are which run, of a verb that compares; `needs_all`: the option with which it needs all of a trace at once;
    `options`: more of its own."""

    @click.command(name, help=text)
    @(two_files if sides else trace_files)
    @part_of_trace
    @in_processes
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
        files: tuple[File, ...],
        between: tuple[str, str] | None,
        step: str | None,
        cycle: int | None,
        by: str,
        limit: int | None,
        wide: bool,
        form: str,
        processes: int | None = None,
        dask: str | None = None,
        **more: Any,
    ) -> int:
        from opspan.tables.window import parsed_steps
        from opspan.text_columns import Layout, terminal
        from opspan.views import answer as answers
        from opspan.views.footer import footer_lines

        steps = None if step is None else parsed_steps(step)
        several = sides(files, more) if sides else [files]
        titles = ("A", "B") if len(several) > 1 else ("",)
        if whole := needs_all(more):
            if processes or dask:
                raise UsageError(f"{whole} needs all of a trace at once: leave out --processes and --dask")
            several = [expanded(side) for side in several]
        # A verb that compares takes the steps from the whole run.
        part = None if sides else step
        each = dict.fromkeys(several)
        ranks = {side: None if whole else many(side, between, part, processes, dask, cycle) for side in each}
        with Progress(sum(len(of or side) for side, of in ranks.items()) + 1) as progress:
            asked = Asked(files, steps, by, None, more, progress.done)
            loaded = {
                side: ranks[side] or load(side, progress, between, part, cycle=cycle, unnamed=not_named(side, files))
                for side in each
            }
            found = [loaded[side] for side in several]
            progress.step(_doing(found))
            if answer is not None:
                given = answer(found[0], replace(asked, other=found[-1]))
            elif (many_ranks := ranks[files]) is not None:
                given = _of_ranks(many_ranks, name, asks(asked), progress)
            else:
                given = import_module(f"opspan.views.{name}").answer(found[0], **asks(asked))
            runs = [_known(run) for run in found]
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


def _known(run: Analysis | Ranks) -> Run:
    """Returns the lines to print below an answer."""
    from opspan.analysis import Analysis

    return run if isinstance(run, Analysis) else run.whole


def _doing(found: Sequence[Analysis | Ranks]) -> str:
    from opspan.analysis import Analysis

    files = sum(len(run) for run in found if not isinstance(run, Analysis))
    ranges = sum(run.tables.ranges.height for run in found if isinstance(run, Analysis))
    return f"reading {plural(files, 'file')}" if files else f"looking at {plural(ranges, 'range')}"


def _of_ranks(ranks: Ranks, name: str, options: dict[str, Any], progress: Progress) -> Answer:
    from opspan.many.task import Question

    # Which files were named is for the sentences alone.
    parts = ranks.ask(Question(name, {key: options[key] for key in options if key != "files"}), progress=progress.done)
    answer: Answer = import_module(f"opspan.views.{name}").answer_of(parts[0], **options)
    return answer
