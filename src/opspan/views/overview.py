"""The text of `opspan demo`: a table of ops, a table of forward ops with their backward, and a sentence."""

from __future__ import annotations

import polars as pl

from opspan.analysis import Analysis
from opspan.analysis.backward import pairs
from opspan.events.texts import format_time
from opspan.printable import printable
from opspan.questions import Options
from opspan.text_columns import Layout, TextColumn, fitted
from opspan.views.table import table_of

_OPS, _PAIRS = 8, 5  # maximum number of rows of each table
_ALL = 1000  # maximum width of a line in characters, if the layout has no width
_col = pl.col


def overview(analysis: Analysis, layout: Layout) -> str:
    text, _ = table_of(analysis, Options()).printer.text(_OPS, Layout(layout.width or _ALL))
    parts = [
        f"The {_OPS} ops with the most time of their own, as torch.profiler prints them:\n{text}",
        _pairs(analysis.attributed.ranges, layout),
        _seen(analysis),
    ]
    return "\n".join(part for part in parts if part)


def _pairs(ranges: pl.DataFrame, layout: Layout) -> str:
    """Returns a table of the forward ops whose backward took longest. A row has the op and its backward."""
    rows = pairs(ranges).sort("backward_ns", descending=True, maintain_order=True).head(_PAIRS)
    rows = rows.with_columns(_col("op", "backward").cast(pl.String), _col("sizes").cast(pl.String).fill_null(""))
    if not rows.height:
        return ""

    def texts(name: str) -> list[str]:
        return [printable(value) for value in rows[name].to_list()]

    def times(name: str) -> list[str]:
        return [format_time(value / 1000) for value in rows[name].to_list()]

    columns = [
        TextColumn("Op", texts("op"), least=16),
        TextColumn("Sizes of its inputs", texts("sizes"), 2, least=12, cut_end=True),
        TextColumn("Forward", times("forward_ns"), 1),
        TextColumn("Backward op", texts("backward"), least=16),
        TextColumn("Backward", times("backward_ns"), 1),
        TextColumn("# of Calls", [str(count) for count in rows["count"].to_list()], 3),
    ]
    lines, _ = fitted(columns, layout.width or _ALL)
    return "Backward beside the forward op that it belongs to:\n" + "\n".join(lines) + "\n"


def _seen(analysis: Analysis) -> str:
    ranges = analysis.attributed.ranges
    kinds = dict(ranges["kind"].cast(pl.String).value_counts().iter_rows())
    sized = ranges.filter(_col("kind") == "op")["sizes"].count()
    ops, calls, backward = (kinds.get(kind, 0) for kind in ("op", "module", "backward"))
    return (
        f"Seen: {ops} ops ({sized} with the sizes of their inputs), {calls} calls of modules, {backward} backward ops, "
        f"{analysis.coverage.linked} of {analysis.coverage.backward} linked to their forward op.\n"
    )
