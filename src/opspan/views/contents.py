"""Writes sentences on what a trace holds. They are printed if a result is empty, with a command that shows more.

Nothing to show: there are no ranges. The trace holds 4,340 kernels, 12 copies, 12 calls; try --by kernel
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.averages import on_device
from opspan.printable import listed, plural, shell_path
from opspan.tables import Tables

# Kind of work -> its name in the singular and in the plural.
_WORK = {
    "kernel": ("kernel", "kernels"),
    "memcpy": ("copy", "copies"),
    "memset": ("fill", "fills"),
    "sync": ("wait", "waits"),
    "graph": ("launch of a graph", "launches of graphs"),
    "other": ("piece of other work", "pieces of other work"),
}
_TABLES = {
    "calls": ("call", "calls"),
    "functions": ("Python function", "Python functions"),
    "memory": ("event of memory", "events of memory"),
    "samples": ("sample", "samples"),
    "counters": ("value of counters", "values of counters"),
    "metrics": ("metric of a report", "metrics of reports"),
}
_MOST_DOMAINS = 3
# Groupings of `opspan table` that need ranges, and groupings that need kernels or copies.
_OF_RANGES = ("module", "step", "phase", "function")
_OF_WORK = ("stream", "kernel")


def parts(trace: Tables) -> dict[str, str]:
    """Returns the contents of each table that is not empty: 'work' -> '4,340 kernels, 12 copies'. Marks are counted
    separately from ranges."""
    is_mark = trace.ranges["is_mark"].fill_null(value=False)
    texts = {
        "ranges": _in_domains(trace.ranges["domain"].filter(~is_mark), "range", "ranges"),
        "marks": _in_domains(trace.ranges["domain"].filter(is_mark), "mark", "marks"),
        "work": _work(trace.work),
        **{name: _count(trace.frames[name].height, *words) for name, words in _TABLES.items()},
    }
    return {name: text for name, text in texts.items() if text}


def holds(trace: Tables) -> str:
    """Returns a text like 'The trace holds 4,340 kernels, 12 calls', or 'The trace is empty'."""
    return f"The trace holds {counted(trace)}" if parts(trace) else "The trace is empty"


def counted(trace: Tables) -> str:
    return ", ".join(parts(trace).values()) or "0 ranges"


def nothing_by(trace: Tables, by: str) -> str:
    """Returns the message for an empty table that is grouped by `by`."""
    of = "ranges" if by in _OF_RANGES else "kernels or copies" if by in _OF_WORK else "ranges, kernels or copies"
    way = _other_table(trace) or _database(trace)
    return f"Nothing to show: there are no {of}. {holds(trace)}{f'; try {way}' if way else ''}"


def nothing_in(trace: Tables, name: str, shows: tuple[str, ...]) -> str:
    """Returns the message for a file without any rows. `shows` are the tables that the file's format can hold."""
    listed = f"{', '.join(shows[:-1])} and {shows[-1]}" if len(shows) > 1 else shows[0]
    way = "; a .sqlite or .parquet file holds all of that" if parts(trace) else ""
    return f"{name} is empty: it can show {listed}, and the trace has none of them. {holds(trace)}{way}"


def _other_table(trace: Tables) -> str | None:
    """Returns an option with which the table of this trace is not empty, or None."""
    if (~trace.ranges["is_mark"].fill_null(value=False) & trace.ranges["start_ns"].is_not_null()).any():
        return "--by name"
    return "--by kernel" if on_device(trace.work).height else None


def _database(trace: Tables) -> str | None:
    if not parts(trace):
        return None
    named = shell_path(trace.paths[0]) if len(trace.paths) == 1 else "FILE..."
    return f"`opspan export {named} out.sqlite`, which holds all of that as tables"


def _in_domains(domain: pl.Series, one: str, several: str) -> str:
    text = _count(len(domain), one, several)
    domains = domain.drop_nulls().unique().cast(pl.String).sort().to_list()
    if not domains:
        return text
    if len(domains) > _MOST_DOMAINS:
        return f"{text} in {len(domains):,} domains"
    return f"{text} in domain{'s' if len(domains) > 1 else ''} {listed(domains)}"


def _work(work: pl.DataFrame) -> str:
    counts = dict(work["kind"].cast(pl.String).fill_null("other").value_counts().iter_rows())
    return ", ".join(_count(counts[kind], *words) for kind, words in _WORK.items() if kind in counts)


def _count(count: int, one: str, several: str) -> str:
    return plural(count, one, several) if count else ""
