"""Builds a tree of the modules of a model by their names, with the time of each module and of all modules inside.

    module_tree(trace) -> a row for each module, after its parent. Time outside of modules, if any, is in one more row,
        the last. Columns:
        module: its full name, such as layers.0.linear; null outside of modules.
        name: the last part of the full name.
        parent: the row of the module around it.
        class_name: its class; null if the trace does not have it.
        count: how often it was called; null if it was never called, for example a list of modules.
        self_cpu_ns, self_device_ns: time of its ranges.
        cpu_ns, device_ns: time of its ranges and those of all modules inside.
        PHASE_cpu_ns, PHASE_device_ns: the part of cpu_ns and device_ns in a phase (forward, backward, ... or other).

    module_frames(trace, tree) -> the tree with the ops of each module below it, for flame graphs. Columns: parent,
        name, kind (module, or the phase of the op), cpu_ns, device_ns (self times).

A backward op belongs to the module of its forward op. The trace must have gone through `analyse`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.averages import averages
from opspan.analysis.calls import calls_of
from opspan.analysis.phases import PHASES
from opspan.analysis.stacks import totals
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

NO_PHASE = "other"
IN_PHASES = (*PHASES.categories, NO_PHASE)
_DEEPEST = 100  # a module's name is split at this many dots at most; only damaged files have more
_MEASURES = ("cpu_ns", "device_ns")
_col = pl.col


def module_tree(trace: Tables) -> pl.DataFrame:
    sums = averages(trace.ranges, trace.work, ["module", "phase"]).with_columns(_col("module").cast(pl.String))
    calls = calls_of(trace, "module").with_columns(_col("module").cast(pl.String))
    seen = trace.ranges["module"].unique(maintain_order=True).drop_nulls().cast(pl.String).to_list()
    tree = _tree([*seen, *calls["module"].drop_nulls().to_list()])
    if sums["module"].null_count():
        outside = pl.DataFrame({"module": [None], "name": ["(in no module)"], "parent": [None]}, schema=tree.schema)
        tree = pl.concat([tree, outside])
    tree = tree.join(calls, on="module", how="left", maintain_order="left")
    tree = tree.join(_classes(trace), on="module", how="left", maintain_order="left")
    own: dict[tuple[str, str], pl.Series] = {}
    for phase in IN_PHASES:
        of_phase = sums.filter(_col("phase").cast(pl.String).fill_null(NO_PHASE) == phase)
        here = tree.select("module").join(of_phase, on="module", how="left", nulls_equal=True, maintain_order="left")
        own |= {(phase, measure): here[f"self_{measure}"].fill_null(0) for measure in _MEASURES}
    for measure in _MEASURES:
        parts = [totals(tree["parent"], own[phase, measure]).alias(f"{phase}_{measure}") for phase in IN_PHASES]
        tree = tree.with_columns(
            pl.sum_horizontal(*(own[phase, measure].alias(phase) for phase in IN_PHASES)).alias(f"self_{measure}"),
            *parts,
        ).with_columns(pl.sum_horizontal(part.name for part in parts).alias(measure))
    return tree


def module_frames(trace: Tables, tree: pl.DataFrame) -> pl.DataFrame:
    sums = averages(trace.ranges, trace.work, ["module", "phase", "name"])
    row = tree.select("module").with_row_index("parent")
    ops = sums.with_columns(_col("module", "name").cast(pl.String), _col("phase").cast(pl.String).fill_null(NO_PHASE))
    ops = ops.join(row, on="module", how="left", nulls_equal=True, maintain_order="left")
    # A range with the name of its module is the call of the module. Its time goes to the module's node, not to an op.
    itself = ops.filter(_col("name") == _col("module"))
    itself = itself.group_by("module").agg(_col("self_cpu_ns", "self_device_ns").sum())
    below = ops.filter((_col("name") != _col("module")).fill_null(value=True))
    nodes = tree.select("module", "parent", "name", kind=pl.lit("module"))
    nodes = nodes.join(itself, on="module", how="left", maintain_order="left")
    columns = ("parent", "name", "kind", "self_cpu_ns", "self_device_ns")
    frames = pl.concat([nodes.select(columns), below.rename({"phase": "kind"}).select(columns)])
    frames = frames.rename({f"self_{measure}": measure for measure in _MEASURES})
    return frames.with_columns(_col(_MEASURES).fill_null(0))


def _tree(modules: Iterable[str]) -> pl.DataFrame:
    """Returns a row for each module and each module around it. A module comes after its parent."""
    rows: dict[str, tuple[str, int | None]] = {}
    place: dict[str, int] = {}
    for module in modules:
        parts = module.split(".", _DEEPEST)
        parent = None
        for depth, name in enumerate(parts):
            path = ".".join(parts[: depth + 1])
            if path not in rows:
                place[path] = len(rows)
                rows[path] = name, parent
            parent = place[path]
    schema = {"module": pl.String, "name": pl.String, "parent": ROW_NUMBER}
    columns = (list(rows), [name for name, _ in rows.values()], [parent for _, parent in rows.values()])
    return pl.DataFrame(dict(zip(schema, columns, strict=True)), schema=schema)


def _classes(trace: Tables) -> pl.DataFrame:
    called = trace.ranges.filter(_col("kind") == "module").select(module="name", class_name="class_name")
    return called.cast(pl.String).drop_nulls().unique("module", keep="first", maintain_order=True)
