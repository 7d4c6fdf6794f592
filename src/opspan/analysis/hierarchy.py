"""Writes the modules around a range as one text, the outermost first, in torch.profiler's form for TorchScript:

    TOP(Net)::forward.layers(Sequential)::forward.0(Linear)::forward.

    hierarchy(ranges) -> a text for each range; null outside of modules with a known class. Returns None
        if no class is known.

`modules` finds the module of a range. The modules around that module come from its name: each prefix of the name counts
if a module with this name was called. Containers such as nn.ModuleList are never called, so they are left out. Call
`nest` and `autograd` first.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.modules import modules
from opspan.tables.schema import NAME


def hierarchy(ranges: pl.DataFrame) -> pl.Series | None:
    is_call = (ranges["kind"] == "module") & ranges["class_name"].is_not_null()
    if not is_call.any():
        return None
    called = ranges.filter(is_call).select(pl.col("name", "class_name").cast(pl.String)).drop_nulls().unique("name")
    classes = dict(called.iter_rows())
    texts = {name: _text(name, classes) for name in classes}
    names = pl.Series(list(texts), dtype=pl.String).cast(NAME)
    values = pl.Series(list(texts.values()))
    module = modules(ranges)["module"]
    return module.replace_strict(names, values, default=None, return_dtype=pl.String).cast(NAME)


def _text(name: str, classes: dict[str, str]) -> str:
    parts = name.split(".")
    text = ""
    for depth, part in enumerate(parts):
        class_name = classes.get(".".join(parts[: depth + 1]))
        if class_name is not None:
            text += f"{part if depth else 'TOP'}({class_name})::forward."
    return text
