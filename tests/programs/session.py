"""The sessions in which the programs of this folder run their `main`.

A program is a plain torch script. `run(main)` reads the command line, enters the requested sessions, all of them at
once, so that two tools see the same ranges of the same process, and calls `main`.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable

import opspan


def run(main: Callable[[], None]) -> None:
    options = arguments()
    for session in in_turn(options):
        with sessions(session):
            main()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvtx", metavar="LABELS", help="emit_nvtx with these labels")
    parser.add_argument("--itt", metavar="LABELS", help="emit_itt with these labels")
    parser.add_argument("--record", metavar="DIR", help="record into this folder")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--in-turn", nargs="+", default=[], metavar="TOOL:LABELS", help="one session after another")
    return parser.parse_args()


def in_turn(options: argparse.Namespace) -> list[argparse.Namespace]:
    """Returns the options for each call of main: one for each session, recorded in DIR/TOOL-LABELS, or all sessions at
    once."""
    each = []
    for tool, labels in (one.split(":") for one in options.in_turn):
        others = {"nvtx": None, "itt": None, "record": f"{options.record}/{tool}-{labels}"}
        each.append(argparse.Namespace(**{**vars(options), **others, tool: labels}))
    return each or [options]


@contextlib.contextmanager
def sessions(options: argparse.Namespace):
    with contextlib.ExitStack() as stack:
        if options.record:
            stack.enter_context(opspan.record(options.record, options.shapes, compiled=options.compiled))
        if options.nvtx:
            stack.enter_context(opspan.emit_nvtx(True, options.shapes, compiled=options.compiled, labels=options.nvtx))
        if options.itt:
            stack.enter_context(opspan.emit_itt(True, options.shapes, compiled=options.compiled, labels=options.itt))
        yield
