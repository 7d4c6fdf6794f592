"""Says in a line what torch.compile compiled, from the figures of analysis/compilations.py.

6 compilations (2 again, 1 of a backward), 41.3s, 3 graph breaks at 1 line
"""

from __future__ import annotations

from opspan.analysis.compilations import figures
from opspan.analysis.parts import Part, Parts
from opspan.printable import plural
from opspan.tables import Tables
from opspan.views.fields import time_text

_PART = "compiled"


def parts(trace: Tables) -> Parts:
    """Returns the figures of each process. If the process of a compile log is in no trace, each rank has the figures
    from this log. All columns are the key, so the equal rows of these ranks count once."""
    rows = figures(trace)
    return {_PART: Part(rows, tuple(rows.columns))}


def columns(parts: Parts) -> dict[str, int | None]:
    """Returns columns for JSON; all are null if no log has a compilation or a graph break."""
    rows = parts[_PART].rows
    is_known = rows.height > 0
    return {
        "compilations": int(rows["compilations"].sum()) if is_known else None,
        "compiled_again": int(rows["again"].sum()) if is_known else None,
        "compile_ns": int(rows["ns"].max() or 0) if is_known else None,  # type: ignore[arg-type]  # a number
        "graph_breaks": int(rows["breaks"].sum()) if is_known else None,
    }


def text(parts: Parts) -> str:
    """Returns the sentence; "" if no log has a compilation or a graph break."""
    rows = parts[_PART].rows
    if not rows.height:
        return ""
    sums = {name: int(rows[name].sum()) for name in ("compilations", "again", "backward", "breaks", "lines")}
    is_one = rows.height == 1
    kinds = [f"{sums['again']:,} again" if sums["again"] else ""]
    kinds += [f"{sums['backward']:,} of a backward" if sums["backward"] else ""]
    what = ("" if is_one else f"{rows.height:,} processes: ") + plural(sums["compilations"], "compilation")
    what += f" ({', '.join(filter(None, kinds))})" if any(kinds) else ""
    longest = time_text(columns(parts)["compile_ns"] or 0)
    # Logs of older versions of torch do not contain graph breaks. So 0 is not mentioned: it may
    # mean that the number of graph breaks is unknown.
    broken = plural(sums["breaks"], "graph break") if sums["breaks"] else ""
    broken += f" at {plural(sums['lines'], 'line')}" if is_one and broken else ""
    return ", ".join(filter(None, [what, longest if is_one else f"up to {longest}", broken]))
