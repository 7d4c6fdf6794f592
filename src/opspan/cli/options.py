"""Defines options that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from opspan.addresses import File, check_local, file_of

F = TypeVar("F", bound=Callable[..., Any])

_MOST_BYTES = "opspan.most_bytes"  # the key in click's `ctx.meta` under which --most-fetched stores its value
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


class _InputPath(click.Path):
    def convert(self, path: Any, _parameter: click.Parameter | None, ctx: click.Context | None) -> File:
        return file_of(path, None if ctx is None else ctx.meta.get(_MOST_BYTES))


def _size(value: str) -> int:
    size = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([kmgt]?)b?", value.strip().lower())
    if size is None:
        raise click.BadParameter(f"{value!r} is not a size; expected a number and a unit, such as 500MB or 40GB")
    return round(float(size[1]) * _SIZES[size[2]])


class _OutputPath(click.Path):
    def convert(self, path: Any, _parameter: click.Parameter | None, _ctx: click.Context | None) -> Path:
        return check_local(Path(path))


FILE_TO_READ = _InputPath()  # the type of an argument that is a file of this machine or an address
FILE_TO_WRITE = _OutputPath()


def fetching(function: F) -> F:
    """Adds the option --most-fetched, the most bytes to fetch from an address. It is parsed before the FILE arguments,
    which need its value."""

    def keep(ctx: click.Context, _parameter: click.Parameter, size: str | None) -> None:
        if size is not None:
            ctx.meta[_MOST_BYTES] = _size(size)

    return click.option(
        "--most-fetched",
        metavar="SIZE",
        is_eager=True,
        expose_value=False,
        callback=keep,
        help="Fetch at most this much of a FILE that is an address: `500MB`, `40GB`.  [default: 16 GiB]",
    )(function)


def labelling(function: F) -> F:
    """Adds the options --emit, --record-shapes and --modules, which choose how an unedited program is labelled."""
    from opspan.app.launch import TOOLS

    emit = click.option(
        "--emit",
        "tool",
        type=click.Choice(list(TOOLS)),
        help="Label torch's ops through NVTX, as Nsight Systems reads, or through ITT, as VTune reads.",
    )
    shapes = click.option("--record-shapes", is_flag=True, help="Put the sizes of each op's inputs on its label.")
    modules = click.option("--modules", is_flag=True, help="Label each call of an nn.Module as well.")
    return emit(shapes(modules(function)))


def capture_folder(function: F) -> F:
    """Adds the option -o, which names the folder of a capture."""
    return click.option(
        "-o",
        "--output",
        "wanted",
        metavar="DIR",
        type=FILE_TO_WRITE,
        help="Folder to write the capture to, new or empty.  [default: a new folder opspan-capture-N]",
    )(function)


def printing(function: F) -> F:
    """Adds the options --limit, --wide and --format, which say how much of an answer to print, and in which format."""
    limit = click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(min=-1),
        help="How many rows to print, -1 for all.  [default: 100 as text, all as json and csv]",
    )
    wide = click.option("--wide", is_flag=True, help="Print all columns and whole names, however wide the terminal is.")
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "csv"]),
        default="text",
        show_default=True,
        help="Output format.",
    )
    return limit(wide(form(function)))
