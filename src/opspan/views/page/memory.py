"""Memory in use over time, the ops that took it, and the blocks in use at the peak.

Times in this section's JSON count from the begin of the trace, because times of the trace's clock may be too large for
numbers in a browser. Time is divided into pieces of equal length. A window of time that a user chooses consists of
whole pieces, so the figures of a window are sums over its pieces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opspan.analysis.busy import whole_times
from opspan.analysis.memory_use import SUMS
from opspan.analysis.memory_windows import Pieces, in_pieces
from opspan.analysis.nest import innermost
from opspan.analysis.spans import DEVICE
from opspan.questions import Options
from opspan.views import memory
from opspan.views.fields import SIZE, Field
from opspan.views.missing import memory_command
from opspan.views.page.columns import table, text, values
from opspan.views.page.section import Section, Subject

_col = pl.col
PIECES = 400  # number of pieces of time; a curve on a screen is about as many pixels wide
MOST_PLACES = 64
# Maximum number of cells. A cell has the figures of one op in one piece of time. If there are more, pieces are joined.
MOST_CELLS = 60_000
MOST_NAMES = 200  # maximum number of ops for each device or host
MOST_BLOCKS = 2_000  # maximum number of blocks for each device or host; all together have at most twice this number
_FIGURES = ("calls", *SUMS, *(f"self_{name}" for name in SUMS))
_BLOCKS = (
    Field("op", "Taken in", "name"),
    Field("around", "Around it", "name", "The range around that one"),
    SIZE,
    Field("taken_ns", "Taken at", "ns", "Since the begin of the trace; nothing: before it"),
    Field("given_ns", "Given back at", "ns", "Since the begin of the trace; nothing: not in it"),
    Field("kept_ns", "Kept for", "ns"),
)
_AT_PEAK = (
    Field("name", "Taken in", "name"),
    Field("blocks", "Blocks", "count"),
    replace(SIZE, bar=True),
)
_BY = {"op": "op", "module": "module", "phase": "phase"}


def section(subject: Subject) -> Section:
    analysis = subject.analysis
    if not analysis.memory_curve.height:
        why = "No allocation was recorded, so nobody can say who took memory"
        return Section("Memory", None, why, memory_command(analysis.tables))
    pieces = Pieces.of(analysis.memory_curve["time_ns"], PIECES)
    first = whole_times(analysis.attributed)["start_ns"].min()
    begin_ns = first if isinstance(first, int) else pieces.first_ns  # otherwise, only memory events have times
    peaks = memory.QUESTION.rows_of(analysis, Options("device")).sort(
        "allocated_bytes", descending=True, maintain_order=True
    )
    shown = peaks.head(MOST_PLACES)
    cells, joined = _cells(subject, pieces, shown)
    curves, at_peak, blocks = (
        _at_places(frame, shown, DEVICE).partition_by(DEVICE, as_dict=True)
        for frame in (analysis.memory_curve, memory.QUESTION.rows_of(analysis, Options("block")), analysis.allocations)
    )
    most_blocks = min(MOST_BLOCKS, 2 * MOST_BLOCKS // shown.height)
    places = [
        {
            "title": title,
            "rank": key[0],
            "peak": {"allocated": peak["allocated_bytes"], "reserved": peak["reserved_bytes"]}
            | {"at": peak["time_ns"] - begin_ns},
            "curve": _curve(curves[key], pieces, begin_ns),
            "ops": _ops(cells.get(key)),
            "blocks": _blocks(subject, blocks[key], most_blocks, begin_ns),
            "at_peak": _at_peak(at_peak.get(key)),
        }
        for key, peak, title in zip(shown.select(DEVICE).rows(), shown.to_dicts(), _titles(subject, shown), strict=True)
    ]
    return Section(
        "Memory",
        {
            "begin_ns": str(begin_ns),
            "first": pieces.first_ns - begin_ns,
            "piece": pieces.length_ns * joined,
            "pieces": -(-pieces.count // joined),
            "places": places,
            "notes": _notes(subject, peaks.height),
        },
    )


def _at_places(rows: pl.DataFrame, places: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Returns only the rows of the devices and hosts that are shown. There may be many thousands of others."""
    return rows.join(places.select(keys), on=keys, how="semi", nulls_equal=True, maintain_order="left")


def _titles(subject: Subject, places: pl.DataFrame) -> list[str]:
    devices = subject.analysis.tables.devices
    names = {row[:2]: row[2] for row in devices.select("rank", "device_id", _col("name").cast(pl.String)).rows()}
    several = [name for name in ("rank", "pid") if places[name].n_unique() > 1]
    titles = []
    for row in places.to_dicts():
        name = names.get((row["rank"], row["device_id"]))
        device = "Host" if row["device_id"] is None else f"Device {row['device_id']}" + (f" ({name})" if name else "")
        whose = {"rank": f"rank {row['rank']}", "pid": f"process {row['pid']}"}
        titles.append(text(", ".join([device, *(whose[name] for name in several)])))
    return titles


def _curve(rows: pl.DataFrame, pieces: Pieces, begin_ns: int) -> dict[str, list[Any]]:
    """Returns the points of the curve. If there are more than PIECES, returns a few for each piece of time: the first,
    the last, and those with the least memory in use, the most in use and the most reserved."""
    if rows.height > PIECES:
        at, allocated, reserved = _col("at"), _col("allocated_bytes"), _col("reserved_bytes")
        moments = (
            rows.with_row_index("at")
            .group_by(pieces.piece("time_ns").alias("piece"))
            .agg(
                first=at.first(),
                last=at.last(),
                least=at.get(allocated.arg_min()),
                most=at.get(allocated.arg_max()),
                reserved=at.get(reserved.arg_max()) if reserved_known(rows) else at.first(),
            )
        )
        rows = rows[moments.drop("piece").unpivot()["value"].unique().sort()]
    return {
        "at": (rows["time_ns"] - begin_ns).to_list(),
        "allocated": rows["allocated_bytes"].to_list(),
        "reserved": rows["reserved_bytes"].to_list() if reserved_known(rows) else [],
    }


def reserved_known(rows: pl.DataFrame) -> bool:
    return rows["reserved_bytes"].count() > 0


def _cells(subject: Subject, pieces: Pieces, places: pl.DataFrame) -> tuple[dict[Any, pl.DataFrame], int]:
    """Returns the figures of each op in each piece of time, for each device or host. Also returns how many pieces were
    joined into one: pieces are joined until there are few enough cells."""
    analysis = subject.analysis
    # The events of all processes that use these devices are needed. If an op took memory in one of the processes,
    # `calls` counts its calls in all of them.
    events = _at_places(analysis.tables.memory, places, ("rank", "device_id"))
    cells = _at_places(in_pieces(analysis.attributed.ranges, events, pieces), places, DEVICE)
    most = cells.group_by(*DEVICE, "name", maintain_order=True).agg(_col("allocation_bytes", "allocation_count").sum())
    most = most.sort("allocation_bytes", "allocation_count", descending=True, maintain_order=True)
    names = most.group_by(DEVICE, maintain_order=True).head(MOST_NAMES).select(*DEVICE, "name")
    cells = cells.join(names, on=[*DEVICE, "name"], how="semi", nulls_equal=True)
    joined = 1
    while cells.height > MOST_CELLS and joined < pieces.count:
        joined *= 2
        key = [*DEVICE, "piece", "name"]
        cells = cells.with_columns(_col("piece") // 2).group_by(key, maintain_order=True).agg(_col(_FIGURES).sum())
    return cells.sort("piece", maintain_order=True).partition_by(DEVICE, as_dict=True), joined


def _ops(cells: pl.DataFrame | None) -> dict[str, Any]:
    if cells is None:
        return {"names": [], "piece": [], "name": [], **{name: [] for name in _FIGURES}}
    names = cells["name"].unique(maintain_order=True).to_frame().with_row_index("at")
    at = cells.select("name").join(names, on="name", how="left", nulls_equal=True, maintain_order="left")["at"]
    figures = {name: cells[name].to_list() for name in ("piece", *_FIGURES)}
    return {"names": values(names["name"]), "name": at.to_list(), **figures}


def _blocks(subject: Subject, blocks: pl.DataFrame, most: int, begin_ns: int) -> dict[str, Any]:
    """Returns the largest blocks. `op` is the innermost range that was open on the thread when it took the block, and
    `around` is the range around `op`."""
    ranges = subject.analysis.attributed.ranges
    known = blocks.filter(pl.coalesce("alloc_ns", "free_ns").is_not_null())
    rows = known.sort("bytes", descending=True, nulls_last=True, maintain_order=True).head(most)
    inside = innermost(ranges, rows.rename({"alloc_ns": "time_ns"}))
    rows = rows.select(
        ranges["name"].gather(inside).alias("op"),
        ranges["name"].gather(ranges["parent"].gather(inside)).alias("around"),
        "bytes",
        taken_ns=_col("alloc_ns") - begin_ns,
        given_ns=_col("free_ns") - begin_ns,
        kept_ns=_col("free_ns") - _col("alloc_ns"),
    )
    cut = f"These are the {rows.height:,} largest of {blocks.height:,} blocks: trace.analysed.allocations has all"
    return table(rows, _BLOCKS, [cut] if rows.height < blocks.height else [])


def _at_peak(blocks: pl.DataFrame | None) -> list[dict[str, Any]]:
    tables = []
    for by, title in _BY.items():
        if blocks is None or (by != "op" and not blocks[by].count()):
            continue  # no blocks are known, or no block is in a module (or phase)
        sums = blocks.group_by(name=by, maintain_order=True).agg(blocks=pl.len(), bytes=_col("bytes").sum())
        sums = sums.sort("bytes", "blocks", descending=True, maintain_order=True)
        sums = sums.with_columns(_col("name").fill_null("(in none)"))
        tables.append({"title": title, "rows": table(sums, _AT_PEAK)})
    return tables


def _notes(subject: Subject, places: int) -> list[str]:
    untimed = subject.analysis.tables.memory.filter(_col("event").is_in(["alloc", "free"]))["time_ns"].null_count()
    notes = []
    if places > MOST_PLACES:
        command = f"opspan memory {subject.typed} --by device"
        notes.append(f"These are the {MOST_PLACES} of {places:,} with the highest peaks: `{command}` shows all")
    if untimed:
        notes.append(f"{untimed:,} allocations and frees have no time, and are not in this section")
    return notes
