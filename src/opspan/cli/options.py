"""Defines the options of verbs that capture or write files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from opspan.addresses import check_local

F = TypeVar("F", bound=Callable[..., Any])


class _OutputPath(click.Path):
    def convert(self, path: Any, _parameter: click.Parameter | None, _ctx: click.Context | None) -> Path:
        return check_local(Path(path))


FILE_TO_WRITE = _OutputPath()


def labelling(function: F) -> F:
    """Adds the options --emit, --record-shapes, --modules and --compiled, which choose how an unedited program is
    labelled."""
    from opspan.app.launch import TOOLS

    emit = click.option(
        "--emit",
        "tool",
        type=click.Choice(list(TOOLS)),
        help="Label torch's ops through NVTX, as Nsight Systems reads, or through ITT, as VTune reads.",
    )
    shapes = click.option("--record-shapes", is_flag=True, help="Put the sizes of each op's inputs on its label.")
    modules = click.option("--modules", is_flag=True, help="Label each call of an nn.Module as well.")
    compiled = click.option(
        "--compiled",
        is_flag=True,
        help="Add what torch.compile says about its kernels: ops and source lines, and why it compiled again.",
    )
    return emit(shapes(modules(compiled(function))))


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
