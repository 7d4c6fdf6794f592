"""Implements `opspan flops`, which shows how many operations and bytes ops need, and how near the rates of ops are to
the device's limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from opspan.cli.answers import Verb
from opspan.questions import Options

_HELP = """Print the operations and bytes of ops, how fast they were, and which bound of the device they are near.

Operations and bytes are computed from the sizes and types of inputs, so the program has to be recorded with
record_shapes=True. The rates are compared with the device's peak, if it is known, or with that of the processor, which
`opspan doctor --measure-peaks` measures. The MFU is the least time that matrix
products, convolutions and attention could take, as a share of the time in which the devices worked on the steps.

\b
Example:
  opspan flops trace.json
  opspan flops trace.json --by run --peak 'H100 SXM'
  opspan flops capture --by module --peak bf16=312e12 --peak bandwidth=2.0e12
"""
_PEAK = click.Option(
    ["--peak"],
    multiple=True,
    metavar="PEAK",
    help="The peak of the device, or of the processor, per second: TYPE=FLOPS (fp64, fp32, tf32, fp16, bf16, fp8, "
    "int8; dense), bandwidth=BYTES or the name of a device that opspan knows. May be given several times.",
)


class FlopsVerb(Verb):
    def request(self, options: Options, more: Mapping[str, Any]) -> Options:
        return replace(options, peak=more["peak"])


command = FlopsVerb("flops", _HELP, (_PEAK,)).command()
