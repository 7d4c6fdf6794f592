"""What verbs that answer one question share: their options, loading, and printing in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from opspan.questions import BY, Options, question

if TYPE_CHECKING:
    from opspan.analysis import Analysis
    from opspan.many.ranks import Ranks
    from opspan.tables import Tables
    from opspan.views.answer import Answer
    from opspan.views.footer import Run


# Takes the files and the verb's own options, and returns the files of each run.
Sides = Callable[[tuple[File, ...], Mapping[str, Any]], Sequence[tuple[File, ...]]]
# Makes the answer of the traces of all sides.
Comparison = Callable[[Sequence["Analysis | Ranks"], Options, Mapping[str, Any], Callable[[int, int], None]], "Answer"]


def answering(
    name: str,
    text: str,
    asks: Callable[[Options, Mapping[str, Any]], Options] = lambda options, _more: options,
    *,
    compare: Comparison | None = None,
    is_whole: bool = False,
    sides: Sides | None = None,
    needs_all: Callable[[Mapping[str, Any]], str | None] = lambda _more: None,
    lean: Callable[[], Callable[[Tables], Tables]] | None = None,
    changed: Callable[[Analysis, Mapping[str, Any]], Analysis] = lambda analysis, _more: analysis,
    instead: Callable[..., bool] = lambda *_arguments, **_named: False,
    options: Sequence[click.Option] = (),
) -> click.Command:
    """Returns a verb that prints the answer to the question of its name. `asks` adds the verb's own options. With
    `is_whole` nothing is printed below the answer. A verb that compares has `compare`, which makes the answer, and
    `sides`, which says which files are which run. `needs_all` returns the option with which the verb needs all of a
    trace at once, and `changed` may add to that trace. `lean` returns what drops the columns that the verb does not
    read. `instead` prints files that are no trace, and returns whether it did."""
    by_names = BY[name]

    @click.command(name, help=text)
    @(two_files if sides else trace_files)
    @part_of_trace
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
        from opspan.analysis import Analysis
        from opspan.tables.window import parsed_steps
        from opspan.views.footer import footer_lines

        if instead(files, limit, form, more, wide=wide):
            return 0
        steps = None if step is None else parsed_steps(step)
        request = asks(Options(by, files, steps), more)
        several = sides(files, more) if sides else [files]
        titles = ("A", "B") if len(several) > 1 else ("",)
        if option := needs_all(more):
            if processes or dask:
                raise UsageError(f"{option} needs all of a trace at once: leave out --processes and --dask")
            several = [expanded(side) for side in several]
        # A verb that compares takes the steps from the whole run.
        part = None if sides else step
        ranks = {side: None if option else many(side, between, part, processes, dask, cycle) for side in several}
        kept = None if lean is None else lean()
        with Progress(sum(len(of or side) for side, of in ranks.items()) + 1) as progress:
            loaded = {
                side: of or load(side, progress, between, part, kept, cycle, not_named(side, files))
                for side, of in ranks.items()
            }
            runs = [loaded[side] for side in several]
            progress.step(_doing(runs))
            if compare is not None:
                answer = compare(runs, request, more, progress.done)
            else:
                if isinstance(runs[0], Analysis):
                    runs[0] = changed(runs[0], more)
                answer = _answer(name, runs[0], request, progress.done)
            heads = [run if isinstance(run, Analysis) else run.whole for run in runs]
            named = zip(heads, titles, strict=True)
            below = [] if is_whole else [line for head, title in named for line in footer_lines(head, title)]
        show_answer(answer, heads, below, limit, form, wide=wide)
        return answer.exit_code

    command.params.extend(options)
    return command


def _answer(name: str, run: Analysis | Ranks, options: Options, done: Callable[[int, int], None]) -> Answer:
    from opspan.analysis import Analysis

    asked = question(name)
    if isinstance(run, Analysis):
        return asked.answer_of(run, options)
    return asked.answer(run.ask((name, options), progress=done)[0], asked.checked(options))


def show_answer(
    answer: Answer, heads: Sequence[Run], below: Sequence[str], limit: int | None, form: str, *, wide: bool
) -> None:
    """Prints an answer, and the lines below it, in the form that was asked for."""
    from opspan.text_columns import Layout, terminal
    from opspan.views import answer as answers

    layout = Layout(whole_names=True) if wide or form != "text" else terminal()
    if form == "text":
        text = answers.as_text(answer, answers.ROWS_OF_TEXT if limit is None else limit, layout)
        show(text + "".join(f"{line}\n" for line in ("", *layout.lines(below)) if below))
    else:
        # Standard error gets the lines that the document does not hold.
        is_json = form == "json"
        notes = [*([] if is_json and answer.notes_in_json else answer.notes), *([] if is_json else below)]
        show("".join(f"{line}\n" for line in notes), err=True)
        rows = -1 if limit is None else limit
        show_data(answers.as_json(answer, heads, rows) if is_json else answers.as_csv(answer, rows))
    show("".join(f"{line}\n" for line in layout.lines(answer.lacking)), err=True)


def _doing(runs: Sequence[Analysis | Ranks]) -> str:
    from opspan.analysis import Analysis

    files = sum(len(run) for run in runs if not isinstance(run, Analysis))
    ranges = sum(run.tables.ranges.height for run in runs if isinstance(run, Analysis))
    return f"reading {plural(files, 'file')}" if files else f"looking at {plural(ranges, 'range')}"
