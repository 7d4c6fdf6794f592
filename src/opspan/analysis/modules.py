"""Finds, for each range, the module that it belongs to.

    modules_of(trace) -> the ranges with their modules, including modules from the log of torch.compile.
    modules(ranges) -> the ranges with the column module (Categorical): the name of the innermost module around the
        range, null outside of modules.

A module is recognised by:

    a range of kind module: its name is the full name of the module, such as MLP.layers.0.
    a range FSDP::pre_forward (blocks.3): the module is blocks.3, from there to the FSDP::post_forward of this module on
        the same thread. If this time is inside a range of kind module for the same module, only that range counts.
    {'traceMarker': ..., 'funcStack': '...'}: DLProf's stack of calls. Net::forward/Conv2d::forward is Net.Conv2d.
    a Python call, such as `nn.Module: Linear_1`: the module is Net_0.Linear_1, where Net_0 is the module that it was
        called from.

Kernels of torch.compile, and ops inside a compiled graph, have the module that torch.compile logged; recordings with
compiled=True have this log. An op of a replayed CUDA graph has the module that was recorded at its capture, else the
module of the range around the op. A range inside a backward belongs to the module of its forward op. Call `nest`
first, and also `autograd` if ranges in the backward should have modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opspan.analysis.autograd import inherit_from_forward
from opspan.analysis.functions import module_paths
from opspan.analysis.nest import innermost, nearest, timed, timeless
from opspan.row_numbers import ROW_NUMBER

if TYPE_CHECKING:
    from opspan.tables import Tables

_col = pl.col
_FSDP = r"^FSDP::(pre|post)_forward \(([^)]*)\)$"
# These parts of a name come from wrappers such as FSDP. They are removed, because the model's own names lack them.
_WRAPPERS = r"\.?_(?:checkpoint_wrapped|fsdp_wrapped|orig)_mod(?:ule)?\b"
_STACK = "[\"']funcStack[\"']: [\"']([^\"']*)[\"']"
_FORWARD = r"[^/:]+::forward"
_THREAD = ["rank", "pid", "tid"]


def modules_of(trace: Tables) -> pl.DataFrame:
    """Returns the ranges with their modules. A module from torch.compile's log overrides others. The trace must have
    gone through `attribute`."""
    ranges = modules(trace.ranges, trace.functions)
    if not trace.provenance["module_path"].count():
        return ranges
    from opspan.analysis.provenance import compiled_modules

    compiled = compiled_modules(trace)
    return ranges.with_columns(compiled.zip_with(compiled.is_not_null(), ranges["module"]).alias("module"))


def modules(ranges: pl.DataFrame, calls: pl.DataFrame | None = None) -> pl.DataFrame:
    """Adds the column `module` to the ranges. `calls` is the table `functions`. It is used only if the ranges have a
    column `function`."""
    own = _own(ranges)
    around = nearest(ranges, own.is_not_null())
    module = own.gather(around)
    spans = fsdp_spans(ranges)
    if spans.height:
        inside = innermost(spans, ranges.rename({"start_ns": "time_ns"}))
        # A range may be inside both a module's range and an FSDP span. The one of the two that began later is the inner
        # one.
        inner = spans["start_ns"].gather(inside) > ranges["start_ns"].gather(around)
        module = spans["module"].gather(inside).zip_with(inside.is_not_null() & inner.fill_null(value=True), module)
    if calls is not None and calls.height and "function" in ranges.columns:
        module = module.zip_with(module.is_not_null(), module_paths(calls).gather(ranges["function"]))
    if timeless(ranges) is not None:
        stated = ranges["module_path"]
        module = stated.zip_with(stated.is_not_null(), module.gather(timed(ranges)))
    return ranges.with_columns(inherit_from_forward(ranges, module).alias("module"))


def _own(ranges: pl.DataFrame) -> pl.Series:
    """Returns the module of each range that is itself a call of a module; null for other ranges."""
    is_module = (ranges["kind"] == "module").fill_null(value=False)
    own = ranges["name"].zip_with(is_module, pl.Series([None], dtype=pl.Categorical))
    has_stack = ranges["text"].str.contains("funcStack", literal=True) if ranges["text"].count() else None
    if has_stack is None or not has_stack.any():
        return own
    marked = ranges.select(pl.int_range(pl.len(), dtype=ROW_NUMBER).alias("row"), "text").filter(has_stack)
    calls = _col("text").str.extract(_STACK).str.extract_all(_FORWARD)
    names = calls.list.eval(pl.element().str.strip_suffix("::forward")).list.join(".")
    marked = marked.select("row", names.alias("module")).filter(_col("module") != "")
    return own.scatter(marked["row"], marked["module"].cast(pl.Categorical))


def fsdp_spans(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns a span from each pre_forward to the next post_forward of the same module and thread. Leaves out spans
    that are inside a range of kind module for the same module."""
    is_fsdp = ranges["name"].cat.starts_with("FSDP::p")
    if not is_fsdp.any():
        return ranges.clear().select(*_THREAD, "start_ns", "end_ns", "is_async", module="name")
    label = _col("name").cast(pl.String)
    marks = ranges.filter(is_fsdp).select(
        *_THREAD,
        "start_ns",
        "end_ns",
        label.str.extract(_FSDP, 1).alias("when"),
        label.str.extract(_FSDP, 2).str.replace_all(_WRAPPERS, "").alias("module"),
    )
    key = [*_THREAD, "module"]
    marks = marks.drop_nulls(["when", "start_ns"]).sort("start_ns", maintain_order=True)
    marks = marks.with_columns(
        _col("when").shift(-1).over(key).alias("next"), _col("end_ns").shift(-1).over(key).alias("next_end_ns")
    )
    # A pre_forward may lack a post_forward, for example when a checkpoint recomputes. In this case the span ends with
    # the range of the pre_forward.
    end_ns = pl.when(_col("next") == "post").then("next_end_ns").otherwise("end_ns")
    spans = marks.filter(_col("when") == "pre").select(
        *_THREAD,
        "start_ns",
        end_ns.alias("end_ns"),
        pl.lit(False).alias("is_async"),
        _col("module").cast(pl.Categorical),
    )
    return spans.filter(~_in_own_range(spans, ranges.filter(_col("kind") == "module")))


def _in_own_range(spans: pl.DataFrame, of_modules: pl.DataFrame) -> pl.Series:
    """Returns, for each span, whether the span begins in a range of the same module; only the innermost range of a
    module counts. FSDP's names begin at the module that FSDP shards, not at the whole model. So names are the same if
    the range's name ends with the span's name."""
    around = innermost(of_modules, spans.rename({"start_ns": "time_ns"}))
    names = pl.DataFrame({"span": spans["module"], "range": of_modules["name"].gather(around)})
    full_name = pl.lit(".") + _col("range").cast(pl.String).str.replace_all(_WRAPPERS, "")
    same = full_name.str.ends_with(pl.lit(".") + _col("span").cast(pl.String))
    return names.select(same.fill_null(value=False)).to_series()
