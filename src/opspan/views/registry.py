"""Writes an output completely or not at all, and never replaces a file that the trace was read from. opspan/outputs.py
lists the outputs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from polars.exceptions import PolarsError

from opspan import forked, outputs, private_files
from opspan.addresses import File, check_local, recorded_file
from opspan.analysis import Analysis
from opspan.errors import UsageError, WriteError
from opspan.files import exists, is_folder
from opspan.outputs import Output
from opspan.printable import as_utf8, path_text
from opspan.tables import storage
from opspan.views.contents import nothing_in, parts


def output_for(out: Path) -> Output:
    """Returns the output whose pattern matches the name of the file. If there is none, returns the output with the
    longest suffix that the name ends with."""
    for output in outputs.OUTPUTS:
        if output.pattern and fnmatchcase(out.name.lower(), output.pattern):
            return output
    matches = [
        (len(suffix), output) for output in outputs.OUTPUTS for suffix in output.suffixes if _ends_with(out, suffix)
    ]
    if not matches:
        names = (name for output in outputs.OUTPUTS for name in (*output.suffixes, output.pattern) if name)
        raise UsageError(f"{path_text(out)} has an unknown suffix; expected one of {', '.join(names)}")
    return max(matches, key=lambda pair: pair[0])[1]


def _ends_with(out: Path, suffix: str) -> bool:
    return out.name.lower().endswith(suffix) and len(out.name) > len(suffix)


@forked.elsewhere
def export(
    analysis: Analysis,
    out: Path,
    *,
    overwrite: bool = False,
    samples: bool = False,
    name: str | None = None,
    write: Callable[[Analysis, Path], list[str]] | None = None,
) -> list[str]:
    """Writes the trace to `out`. The name of `out` selects the output, unless `name` names one. Returns a sentence for
    each thing that the format cannot hold. With `samples`, writes the stacks of samples of processors. If the output
    needs more than the trace, pass a function `write`. It is called instead of the function in the output's module."""
    output = output_for(out) if name is None else _named(name)
    sources = [recorded_file(path) for path in analysis.tables.paths]
    _check(out, sources, output, overwrite=overwrite)
    if samples:
        _check_shows_samples(out, output)
        if not analysis.tables.samples.height:
            raise UsageError(f"the trace has no samples of the host's processors, so {path_text(out)} cannot show them")
    try:
        with private_files.unfinished(out, overwrite=overwrite) as unfinished:
            if write is None:
                module = import_module(f"opspan.views.{output.samples if samples else output.name}")
                write = module.write_samples if samples else module.write
            left_out: list[str] = write(analysis, unfinished)
    except FileExistsError as error:  # another program made the file after the check
        raise WriteError(_exists(out)) from error
    except (OSError, PolarsError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise WriteError(f"cannot write {path_text(out)}: {why}") from error
    if not samples and output.shows and not parts(analysis.tables).keys() & set(output.shows):
        left_out = [nothing_in(analysis.tables, out.name, output.shows)]
    return left_out


def check_output(out: Path, sources: Sequence[File], *, overwrite: bool, samples: bool = False) -> None:
    """Raises WriteError if `out` must not be written. A file that the trace was read from is never replaced, even with
    `overwrite`. Raises UsageError if `samples` is asked for, but the output does not show them."""
    output = output_for(out)
    if samples:
        _check_shows_samples(out, output)
    _check(out, sources, output, overwrite=overwrite)


def _check_shows_samples(out: Path, output: Output) -> None:
    if not output.samples:
        suffixes = [suffix for other in outputs.OUTPUTS if other.samples for suffix in other.suffixes]
        raise UsageError(
            f"stacks of samples cannot be written to {path_text(out)}; expected one of {', '.join(suffixes)}"
        )


def check_named(name: str, out: Path, sources: Sequence[File], *, overwrite: bool) -> None:
    """Raises WriteError like `check_output`. `name` names the output; the name of the file does not matter."""
    _check(out, sources, _named(name), overwrite=overwrite)


def _named(name: str) -> Output:
    return next(output for output in outputs.OUTPUTS if output.name == name)


def _check(out: Path, sources: Sequence[File], output: Output, *, overwrite: bool) -> None:
    # os.path.realpath is used because Path.resolve raises an error if links form a circle.
    target = Path(os.path.realpath(check_local(out)))
    for source in (Path(os.path.realpath(path)) for path in sources if isinstance(path, Path)):
        if _is_same_file(target, source) or (source in target.parents and exists(target)):
            raise WriteError(
                f"{path_text(out)} is, or lies in, {source}, which the trace was read from. That is never replaced: "
                "choose another name"
            )
    if not os.path.lexists(out) or (_is_stream(out) and not output.is_folder):
        return
    if not overwrite:
        raise WriteError(_exists(out))
    if is_folder(out) and not output.is_folder:
        raise WriteError(
            f"{path_text(out)} is a folder; expected a file to replace. Nothing was written: choose another name"
        )
    if output.is_folder and not storage.is_saved(out):
        raise WriteError(f"{path_text(out)} exists and is not a saved trace. Nothing was written: choose another name")


def _is_stream(out: Path) -> bool:
    """Returns whether `out` is a stream. Writing to a stream replaces no file, so it does not need `overwrite`."""
    try:
        return private_files.is_stream(out)
    except OSError as error:
        raise WriteError(f"cannot write {path_text(out)}: {error.strerror}") from error


def _exists(out: Path) -> str:
    return f"{path_text(out)} exists already. Nothing was written: choose another name, or give --force to replace it"


def _is_same_file(one: Path, other: Path) -> bool:
    """Returns whether both paths lead to the same file, even by hard links or on a file system that ignores case. Paths
    are compared as UTF-8, because a trace has the paths of its sources as UTF-8."""
    return as_utf8(str(one)) == as_utf8(str(other)) or (exists(one) and exists(other) and one.samefile(other))
