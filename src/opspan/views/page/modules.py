"""The tree of modules with their times, a flame graph of modules, and a flame graph of functions and ranges."""

from __future__ import annotations

from typing import Any

import polars as pl

from opspan.analysis.call_tree import call_tree
from opspan.analysis.module_tree import IN_PHASES, module_frames, module_tree
from opspan.sources import MODULES
from opspan.views.fields import CALLS, Field, with_values
from opspan.views.missing import labelling_command, without
from opspan.views.page.columns import MOST_ROWS, renumbered, sizes, table, values
from opspan.views.page.flame import flame
from opspan.views.page.section import Section, Subject

_SIDES = {"device_ns": "device", "cpu_ns": "host"}
_TITLES = {
    "forward": "Forward",
    "backward": "Backward",
    "optimizer": "Optimizer",
    "data": "Data",
    "prefill": "Prefill",
    "decode": "Decode",
    "mixed": "Prefill and decode",
    "diffusion": "Diffusion",
    "other": "No phase",
}
_PARTS = {
    "forward": "Of the total: the forward",
    "mixed": "Of the total: steps that have requests in their prefill and requests in their decode",
    "backward": "Of the total: the backward of what ran in the forward of the module",
}
_col = pl.col


def section(subject: Subject) -> Section:
    trace = subject.analysis.complete
    calls = flame(call_tree(trace))
    measures = list(calls["own"])
    if not measures:
        why = "No range of this trace has any time, on the host or on a device"
        return Section("Modules", None, why, labelling_command(trace, MODULES))
    title = "Python functions, and the ranges in them" if trace.functions.height else "ranges, as they were nested"
    flames = [{"of": "calls", "title": title, **calls}]
    if not trace.ranges["module"].count():
        return Section(
            "Modules", {"tree": None, "why": without(trace, "module"), "measures": measures, "flames": flames}
        )
    tree = module_tree(trace)
    flames.insert(0, {"of": "modules", "title": "modules, and the ops in each", **flame(module_frames(trace, tree))})
    called = trace.ranges.filter(_col("kind") == "module")["name"].unique().cast(pl.String)
    return Section(
        "Modules", {"tree": _tree(tree, measures, called), "why": "", "measures": measures, "flames": flames}
    )


def _tree(tree: pl.DataFrame, measures: list[str], ranges: pl.Series) -> dict[str, Any]:
    """Returns the largest modules. Their parents are always included, because a parent is at least as large as its
    children and comes before them. `ranges` are the names of ranges that are calls of modules: the timeline can show
    only these modules."""
    tree = tree.with_row_index("row").with_columns(sizes(tree, measures))
    largest = renumbered(tree.sort("size", descending=True, maintain_order=True).head(MOST_ROWS))
    more = tree.height - largest.height
    shown = [Field("name", "Module", "name"), Field("class_name", "Class", "name"), CALLS]
    for measure in measures:
        side = _SIDES[measure]
        shown += [
            Field(measure, "Total", "ns", f"Time on the {side}, with all modules in it, in all phases", bar=True),
            Field(f"self_{measure}", "Self", "ns", f"Time on the {side}, without the modules in it"),
            *(
                Field(f"{phase}_{measure}", _TITLES[phase], "ns", _PARTS.get(phase, "Of the total"))
                for phase in IN_PHASES
                if tree[f"{phase}_{measure}"].sum()
            ),
        ]
    notes = [f"{more:,} more modules are not in this page: `opspan table --by module` shows all"] if more else []
    shown_rows = table(largest, with_values(shown, tree), notes)
    for head in shown_rows["columns"]:
        if "of" in head:  # the sum of the column would count a module again in each module around it
            head["of"] = tree.filter(_col("parent").is_null())[head["name"]].sum()
            head["whole"] = "the outermost rows"
    return {
        **shown_rows,
        "parent": largest["parent"].to_list(),
        "whole": values(largest["module"]),
        "is_range": largest["module"].is_in(ranges.implode()).fill_null(value=False).to_list(),
    }
