"""Implements `opspan functions`, which shows what processors executed, as tools sampled it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from opspan.cli.answers import Verb
from opspan.questions import INSIDE, Options

_HELP = """Print the functions that the host's processors executed, as a tool sampled them.

nsys, VTune and perf interrupt each processor at a fixed rate, and write the stack of the thread that runs there. A
function's own share counts the samples in which it was the innermost, the total those in which it was anywhere in the
stack. Each sample also belongs to the innermost range that was open on its thread, so --in shows the functions of one
op, module or range, and --by op shows how the samples are divided among ops. --by call divides them among the calls
that the tool recorded, such as those of CUDA and the system. Shares need at least 30 samples.

\b
Example:
  opspan functions report.sqlite
  opspan functions report.sqlite --in op aten::addmm
  opspan functions r000hs --by module
  opspan functions report.sqlite --idle --by library
"""
_IN = click.Option(
    ["--in", "inside"],
    nargs=2,
    type=(click.Choice(INSIDE), str),
    metavar="KIND NAME",
    help="Only samples inside ops, modules, ranges or calls of this name: op, module, range or call, and the name or a "
    "pattern.",
)
_IDLE = click.Option(["--idle"], is_flag=True, help="Only samples that were taken while a device had nothing to do.")


class FunctionsVerb(Verb):
    def request(self, options: Options, more: Mapping[str, Any]) -> Options:
        return replace(options, inside=more["inside"] or None, idle=more["idle"])


command = FunctionsVerb("functions", _HELP, (_IN, _IDLE)).command()
