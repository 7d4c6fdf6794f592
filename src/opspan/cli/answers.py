"""Defines Verb, the base of the verbs that answer one question. They load traces and print an answer in the requested
format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from opspan.addresses import File
from opspan.cli.loading import (
    PartToRead,
    Progress,
    expanded,
    how_to_read,
    in_processes,
    load,
    many,
    steps_of,
    trace_files,
)
from opspan.cli.printing import printing, show, show_data
from opspan.errors import UsageError
from opspan.printable import plural
from opspan.questions import BY, Options, question

if TYPE_CHECKING:
    from opspan.analysis import Analysis
    from opspan.many.ranks import Ranks
    from opspan.tables import Tables
    from opspan.views.answer import AnalysedRun, Answer


class Verb:
    """A verb that prints the answer to the question of the same name. Subclasses override methods to ask, read or
    compare in another way. `more` has the values of the verb's own options."""

    is_whole = False  # True if nothing should be printed below the answer
    files_argument = staticmethod(trace_files)

    def __init__(self, name: str, text: str, options: Sequence[click.Option] = ()) -> None:
        self.name = name
        self.text = text
        self.options = options

    def request(self, options: Options, more: Mapping[str, Any]) -> Options:
        return options

    def sides(self, files: tuple[File, ...], more: Mapping[str, Any]) -> Sequence[tuple[File, ...]]:
        """Returns the runs that the verb reads, each as a tuple of its files."""
        return [files]

    def needs_all(self, more: Mapping[str, Any]) -> str | None:
        """Returns the name of a given option that needs the complete trace at once, or None."""
        return None

    def step_to_read(self, step: str | None) -> str | None:
        return step

    def lean(self) -> Callable[[Tables], Tables] | None:
        """Returns a function that drops the columns that the verb does not need, or None."""
        return None

    def prints_report(
        self, files: Sequence[File], limit: int | None, form: str, more: Mapping[str, Any], *, wide: bool
    ) -> bool:
        """Prints the files if they are a report of another tool and not a trace. Returns whether it printed them."""
        return False

    def extended(self, analysis: Analysis, more: Mapping[str, Any]) -> Analysis:
        """Returns the analysis with the additions that the verb's own options request, such as metrics."""
        return analysis

    def answer(
        self,
        runs: Sequence[Analysis | Ranks],
        options: Options,
        more: Mapping[str, Any],
        done: Callable[[int, int], None],
    ) -> Answer:
        from opspan.analysis import Analysis

        run, asked = runs[0], question(self.name)
        if isinstance(run, Analysis):
            return asked.answer_of(run, options)
        return asked.answer(run.ask((self.name, options), progress=done)[0], asked.checked(options))

    def run(
        self,
        files: tuple[File, ...],
        reading: PartToRead,
        by: str,
        limit: int | None,
        wide: bool,
        form: str,
        processes: int | None = None,
        dask: str | None = None,
        **more: Any,
    ) -> int:
        from opspan.analysis import Analysis
        from opspan.views.answer import footer_lines

        if self.prints_report(files, limit, form, more, wide=wide):
            return 0
        request = self.request(Options(by, files, steps_of(reading.step)), more)
        sides = self.sides(files, more)
        if option := self.needs_all(more):
            if processes or dask:
                raise UsageError(f"{option} needs all of a trace at once: leave out --processes and --dask")
            sides = [expanded(side) for side in sides]
        reading = replace(reading, step=self.step_to_read(reading.step))
        ranks = {side: None if option else many(side, reading, processes, dask) for side in sides}
        with Progress(sum(len(run or side) for side, run in ranks.items()) + 1) as progress:
            loaded = {
                side: run or load(side, progress, reading, self.lean(), named=files) for side, run in ranks.items()
            }
            runs = [loaded[side] for side in sides]
            progress.step(_doing(runs))
            runs = [self.extended(run, more) if isinstance(run, Analysis) else run for run in runs]
            answer = self.answer(runs, request, more, progress.done)
            heads = [run if isinstance(run, Analysis) else run.whole for run in runs]
            named = zip(heads, ("A", "B") if len(heads) > 1 else ("",), strict=True)
            below = [] if self.is_whole else [line for head, title in named for line in footer_lines(head, title)]
        show_answer(answer, heads, below, limit, form, wide=wide)
        return answer.exit_code

    def command(self) -> click.Command:
        by_names = BY[self.name]

        @click.command(self.name, help=self.text)
        @self.files_argument
        @how_to_read
        @in_processes
        @click.option(
            "--by",
            type=click.Choice(by_names or ("",)),
            default=by_names[0] if by_names else "",
            show_default=True,
            hidden=not by_names,
            help="One row for each of these.",
        )
        @printing
        def command(**values: Any) -> int:
            return self.run(**values)

        command.params.extend(self.options)
        return command


def show_answer(
    answer: Answer, heads: Sequence[AnalysedRun], below: Sequence[str], limit: int | None, form: str, *, wide: bool
) -> None:
    """Prints an answer, and the lines below it, in the requested format."""
    from opspan.text_columns import Layout, terminal
    from opspan.views import answer as answers

    layout = Layout(whole_names=True) if wide or form != "text" else terminal()
    if form == "text":
        text = answers.as_text(answer, answers.ROWS_OF_TEXT if limit is None else limit, layout)
        show(text + "".join(f"{line}\n" for line in ("", *layout.lines(below)) if below))
    else:
        # Lines that the JSON or CSV does not contain are printed to standard error.
        is_json = form == "json"
        notes = [*([] if is_json and answer.notes_in_json else answer.notes), *([] if is_json else below)]
        show("".join(f"{line}\n" for line in notes), err=True)
        rows = -1 if limit is None else limit
        show_data(answers.as_json(answer, heads, rows) if is_json else answers.as_csv(answer, rows))
    show("".join(f"{line}\n" for line in layout.lines(answer.lacking)), err=True)


def _doing(runs: Sequence[Analysis | Ranks]) -> str:
    from opspan.analysis import Analysis

    count = sum(len(run) for run in runs if not isinstance(run, Analysis))
    ranges = sum(run.tables.ranges.height for run in runs if isinstance(run, Analysis))
    return f"reading {plural(count, 'file')}" if count else f"looking at {plural(ranges, 'range')}"
