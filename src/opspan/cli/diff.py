"""Implements `opspan diff`, which compares two runs, and shows whether the second is slower."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opspan.cli.answers import Verb
from opspan.cli.loading import two_files
from opspan.cli.options import FILE_TO_WRITE
from opspan.errors import UsageError
from opspan.printable import plural
from opspan.questions import Options

if TYPE_CHECKING:
    from opspan.addresses import File
    from opspan.analysis import Analysis
    from opspan.analysis.figures import Figures
    from opspan.many.ranks import Ranks
    from opspan.tables.window import Steps
    from opspan.views.answer import Answer

_HELP = """Compare two runs: what takes longer in B than in A, and is it noise.

Times are self times on devices, or on CPUs if no device was busy; with --by kernel, all of a kernel's time. If both
runs have steps, times are per step, and the noise is how much the steps of one run differ from each other. A star marks
changes larger than the noise.

With --fail-over N%, the exit code is 1 if a step of B takes longer than one of A by more than N% and, if the noise is
known, by more than the noise; without steps, the whole runs are compared. A step lasts until all that it launched is
done. This can guard a program in CI without keeping a trace: --save-baseline writes the figures of A to a small file,
and --baseline takes that file in place of A.

With --by place, the ranges of a step are compared one by one: the third aten::mm of a module with the third. If one run
does more or less at some point, the ranges after it still find their partners.

To compare two parts of one run, use --with-step or --with-process, which choose B's part where it differs from A's.
With --step, everything that began in these steps is compared, also what a device did for them later, so the whole trace
is read.

A and B may be folders or patterns: the ranks of a run.

\b
Example:
  opspan diff before.json after.json
  opspan diff before.sqlite after.sqlite --by kernel --limit 10
  opspan diff before.json after.json --fail-over 5% --format json
  opspan diff good.json --save-baseline baseline.json
  opspan diff new.json --baseline baseline.json --fail-over 5%
  opspan diff run.json --step 3 --with-step 7 --by place
  opspan diff run.sqlite --process 4100 --with-process 4101
  opspan diff before/ after/ --processes 8
"""


def _share(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?%", text):
        raise UsageError(f"--fail-over is a share in percent, as 5%, and not {text!r}")
    return float(text[:-1]) / 100


class DiffVerb(Verb):
    files_argument = staticmethod(two_files)

    def step_to_read(self, step: str | None) -> None:
        """Returns None, because a comparison reads the complete run, and selects the steps later."""

    def sides(self, files: tuple[File, ...], more: Mapping[str, Any]) -> Sequence[tuple[File, ...]]:
        """Returns the files of each run. With a baseline there is only one run. If both runs are parts of the same
        trace, returns its files twice."""
        named = [name for name in ("baseline", "save_baseline") if more[name]]
        is_part = more["with_step"] is not None or more["with_process"] is not None
        if len(named) > 1:
            raise UsageError("both --baseline and --save-baseline were given; expected one of them")
        count = plural(len(files), "file")
        if named:
            option = f"--{named[0].replace('_', '-')}"
            if len(files) != 1:
                raise UsageError(f"opspan diff takes one file with {option}, and got {count}")
            if is_part:
                raise UsageError(f"with {option} only one trace is read: choose its part with --step and --process")
            return [files]
        if len(files) != 2 and not (is_part and len(files) == 1):
            raise UsageError(f"opspan diff compares two files, A with B, and got {count}")
        return [files[:1], files[-1:]]

    def answer(
        self,
        runs: Sequence[Analysis | Ranks],
        options: Options,
        more: Mapping[str, Any],
        done: Callable[[int, int], None],
    ) -> Answer:
        from opspan.analysis import Analysis
        from opspan.tables.window import parsed_steps
        from opspan.views import baseline
        from opspan.views.diff import answer, figures_of, saved

        def figures(run: Analysis | Ranks, step: Steps | None, process: int | None) -> Figures:
            if isinstance(run, Analysis):
                return figures_of(run, options.by, step, process)
            return run.figures(options.by, step, done)

        step, process = options.step, more["process"]
        if path := more["save_baseline"]:
            assert isinstance(runs[0], Analysis)  # noqa: S101  as `needs_all` says
            return saved(path, baseline.save(runs[0], path, step, process))
        before = figures(runs[0], step, process)
        if path := more["baseline"]:
            return answer(baseline.load(path, options.by), before, more["fail_over"])
        step = step if more["with_step"] is None else parsed_steps(more["with_step"])
        process = process if more["with_process"] is None else more["with_process"]
        return answer(before, figures(runs[-1], step, process), more["fail_over"])

    def needs_all(self, more: Mapping[str, Any]) -> str | None:
        named = [name for name in ("save_baseline", "process", "with_process") if more[name] is not None]
        return f"--{named[0].replace('_', '-')}" if named else None


_OPTIONS = (
    click.Option(
        ["--fail-over"],
        metavar="N%",
        callback=_share,
        help="Exit with 1 if B takes longer than A by more than N%.",
    ),
    click.Option(
        ["--baseline"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Compare with this baseline: the one FILE is B, and this is A.",
    ),
    click.Option(
        ["--save-baseline"],
        metavar="FILE",
        type=FILE_TO_WRITE,
        help="Write the figures of A to this file, and compare nothing. Replaces an earlier baseline.",
    ),
    click.Option(["--with-step"], metavar="N|A-B|NAME", help="Like --step, but for B alone. B may be A's file."),
    click.Option(["--process"], metavar="PID", type=int, help="Compare only what belongs to this process."),
    click.Option(
        ["--with-process"],
        metavar="PID",
        type=int,
        help="Like --process, but for B alone. B may be A's file.",
    ),
)

command = DiffVerb("diff", _HELP, _OPTIONS).command()
