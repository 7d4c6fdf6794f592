"""Measures the peaks of this machine's processor, for `opspan doctor --measure-peaks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opspan.emit import peaks
from opspan.printable import path_text, plural
from opspan.tables import processors
from opspan.views.fields import short_number


def lines(report: Callable[[str], None]) -> Iterator[str]:
    """Measures, and yields the figures as lines. `report` gets a text before each measurement. The last line says where
    the figures are stored."""
    measured = peaks.measure(report)
    facts = processors.from_capture(measured.processor)
    vectors = ", ".join(facts.get("vectors", []))
    name = processors.Processor(facts.get("model"), facts.get("cores"), facts.get("threads")).name
    yield f"{name}{f', {vectors}' if vectors else ''}"
    threads = plural(measured.threads, "thread")
    for type_, rate in measured.flops.items():
        size = f", {measured.size:,} rows and columns" if type_ == "fp32" else ""
        yield f"{type_:<10} {short_number(rate, 'FLOP/s'):>14}  the best of several products, {threads}{size}"
    if measured.bandwidth is None:
        yield "bandwidth  not measured: there is too little memory for a large copy"
    else:
        size = f"{measured.copied >> 20:,} MiB"
        yield f"{'bandwidth':<10} {short_number(measured.bandwidth, 'B/s'):>14}  read and written, copies of {size}"
    if measured.is_disturbed:
        yield (
            f"Only {100 * measured.share:.0f}% of the processors' time went to the products: other programs used the "
            "rest, or a limit holds. If other programs did, measure again without them"
        )
    path = peaks.store(measured)
    yield f"Wrote {path_text(path)}: what opspan records from now on carries these peaks"
