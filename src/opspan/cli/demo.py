"""Implements `opspan demo`, which shows opspan's results on a bundled sample or on a short run that it records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opspan.cli.options import capture_folder
from opspan.cli.page import open_option, open_page
from opspan.cli.printing import show
from opspan.errors import UsageError
from opspan.printable import path_text, plural, shell_path
from opspan.questions import Options, question

if TYPE_CHECKING:
    from opspan.trace import Trace

_FUNCTIONS = 5  # rows of the table of functions


@click.command("demo")
@capture_folder
@click.option(
    "--gpu-sample",
    "is_sample",
    is_flag=True,
    help="Train nothing, and show traces of a training job with two GPUs instead, which a simulator made. Needs "
    "neither torch nor a GPU. The default of DIR is opspan-sample-N.",
)
@click.option(
    "--compiled",
    is_flag=True,
    help="Compile the model with torch.compile, and show the source lines that its kernels were made from. Takes a "
    "minute, and needs a C++ compiler.",
)
@open_option
def command(wanted: Path | None, is_sample: bool, compiled: bool, is_opened: bool) -> None:
    """Train a small model, record it, and show the result.

    Prints a table of the model's ops with backward beside forward, commands to try next, and the output of `opspan
    summary`. Writes a folder with the capture, the page that `opspan report` makes, and ranges.txt, which lists all
    ranges, indented by nesting. Needs only torch. Where Linux's `perf` is installed and allowed, it samples the
    training, and the functions that it found are shown too.

    \b
    Example:
      opspan demo -o demo
      opspan demo --gpu-sample --open
      opspan demo --compiled
    """
    if is_sample and compiled:
        raise UsageError("--gpu-sample trains nothing, so there is nothing to compile: leave out one of the two")
    show_one = _show_sample if is_sample else _show_compiled if compiled else _show_training
    trace, folder = show_one(wanted)
    _write_page(trace, folder / "report.html", is_opened)


def _show_training(wanted: Path | None) -> tuple[Trace, Path]:
    from opspan.app import capturing, demo
    from opspan.app.own_samples import OwnSamples
    from opspan.text_columns import terminal
    from opspan.views.overview import overview

    with capturing.capture_folder(wanted) as folder:
        samples = OwnSamples(folder)
        trace = demo.train(folder, samples)
        text = demo.write_tree(trace, folder / "ranges.txt")
    name = _name(folder)
    following = {
        f"opspan table {name} --by shape": "the same, apart by the sizes of inputs",
        f"opspan table {name} --by module": "by layer, backward beside it",
        f"opspan export {name} {name}.json": "a timeline, for https://ui.perfetto.dev",
        "opspan run --emit nvtx -o capture -- python train.py": "your own program, not edited",
    }
    show(f"{overview(trace.analysed, terminal())}\n{_next(following)}")
    held = f"{plural(trace.ranges.height, 'range')}, {plural(trace.issues.height, 'issue')}"
    show(f"Wrote {path_text(folder)} ({held}) and {path_text(text)}\n")
    _show_summary(trace, folder)
    return _with_functions(trace, folder, samples.why_not()), folder


def _with_functions(trace: Trace, folder: Path, why_not: str | None) -> Trace:
    """Shows the functions that were sampled. Returns the trace with the samples or, if there are none, as it was."""
    from opspan.loading import load
    from opspan.text_columns import terminal
    from opspan.views.answer import as_text

    if why_not is None:
        sampled = load(folder)
        if sampled.samples.height:
            answer = question("functions").answer_of(sampled.analysed, Options())
            show(f"\nSampled with perf, as opspan functions has it:\n{as_text(answer, _FUNCTIONS, terminal())}")
            return sampled
        why_not = "`perf` took none"
    show(f"\nThere are no samples of functions: {why_not}\n")
    return trace


def _show_compiled(wanted: Path | None) -> tuple[Trace, Path]:
    from opspan.app import capturing, demo
    from opspan.text_columns import terminal
    from opspan.views.answer import as_text

    with capturing.capture_folder(wanted) as folder:
        trace = demo.train_compiled(folder)
    name = _name(folder)
    following = {
        f"opspan table {name} --by source-op": "by the ops that the model called",
        f"opspan summary {name}": "what was compiled, and for how long",
        "opspan run --emit nvtx --compiled -o capture -- python train.py": "your own program, not edited",
    }
    show(f"{as_text(trace.table('line'), 10, terminal())}\n{_next(following)}")
    show(f"Wrote {path_text(folder)} ({plural(trace.ranges.height, 'range')})\n")
    _show_summary(trace, folder)
    return trace, folder


def _show_sample(wanted: Path | None) -> tuple[Trace, Path]:
    from opspan.app import capturing, sample_trace
    from opspan.loading import load

    with capturing.capture_folder(wanted, "opspan-sample") as folder:
        files = sample_trace.copy_sample(folder)
    trace = load(*files)
    name = _name(folder)
    following = {
        f"opspan findings {name}": "what is wrong with it, and what to do",
        f"opspan table {shell_path(os.path.relpath(files[0]))} --by kernel": "the kernels of a rank",
        f"opspan comm {name} --by rank": "which rank the others wait for",
        "opspan report trace.json.gz --open": "a trace of your own",
    }
    kernels = plural(trace.work.height, "kernel and copy", "kernels and copies")
    show(f"Wrote {path_text(folder)}: a simulated job of {len(files)} ranks with {kernels}\n\n{_next(following)}")
    _show_summary(trace, folder)
    return trace, folder


def _show_summary(trace: Trace, folder: Path) -> None:
    from opspan.text_columns import terminal
    from opspan.views.answer import as_text

    answer = question("summary").answer_of(trace.analysed, Options(files=(Path(os.path.relpath(folder)),)))
    show(f"\nIn short, as opspan summary has it:\n{as_text(answer, 1, terminal())}")


def _write_page(trace: Trace, page: Path, is_opened: bool) -> None:
    from opspan.errors import MissingPackage

    try:
        trace.report(page)
    except MissingPackage as missing:
        show(f"\nNo report was written: {missing}\n")
        return
    if is_opened:
        show(f"\nAll of it as a page: {path_text(page)}\n")
        open_page(page)
    else:
        show(f"\nAll of it as a page: open {page.resolve().as_uri()} in a browser\n")


def _name(folder: Path) -> str:
    return shell_path(os.path.relpath(folder))


def _next(commands: Mapping[str, str]) -> str:
    width = max(map(len, commands))
    return "Next:\n" + "".join(f"  {command:<{width}}  {why}\n" for command, why in commands.items())
