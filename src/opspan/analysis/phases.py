"""Phases of training: forward, backward, optimizer, data.

    phases(ranges) -> ranges with phase, Enum; null where nothing says which

A range has the phase that it says itself, or else the one that the nearest range around it says. A backward or engine
range says backward; torch's Optimizer.step#... and enumerate(DataLoader)#... say optimizer and data; a range that the
program named after a phase says that phase. If no range says one, ops, modules and scripts are forward.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.nest import nearest

PHASES = pl.Enum(["forward", "backward", "optimizer", "data"])

# Names that say a phase, in lower case. A user's own name has to match as a whole.
_SAYS = {
    "optimizer": r"^(optimizer\.(step|zero_grad)(#.*)?|optimizer|optimizer[ _]step|zero[ _]grad)$",
    "data": r"^(enumerate\(dataloader\)#.*|data|data[ _]?load(ing|er)?|load[ _](data|batch))$",
    "backward": r"^(backward|backward[ _]pass|bwd)$",
    "forward": r"^(forward|forward[ _]pass|fwd)$",
}
_FORWARD_KINDS = ("op", "module", "script", "static_op", "static_model")


def phases(ranges: pl.DataFrame) -> pl.DataFrame:
    said = _said(ranges)
    phase = said.gather(nearest(ranges, said.is_not_null()))
    may_be_forward = ranges["kind"].is_in(_FORWARD_KINDS).fill_null(value=False) & phase.is_null()
    return ranges.with_columns(phase.set(may_be_forward, "forward").alias("phase"))


def says_phase(names: pl.Series) -> pl.Series:
    """For each name whether it says a phase: a part of a step."""
    return names.is_in(_phase_of(names)["name"].implode()).fill_null(value=False)


def _phase_of(names: pl.Series) -> pl.DataFrame:
    """The names that say a phase, once each, and which they say."""
    lower = pl.col("name").cast(pl.String).str.to_lowercase()
    says = pl.lit(None, dtype=PHASES)
    for phase, pattern in _SAYS.items():
        says = pl.when(lower.str.contains(pattern)).then(pl.lit(phase, dtype=PHASES)).otherwise(says)
    rows = names.alias("name").to_frame().select(pl.col("name").unique())
    return rows.with_columns(says.alias("says")).filter(pl.col("says").is_not_null())


def _said(ranges: pl.DataFrame) -> pl.Series:
    names = _phase_of(ranges["name"])
    is_backward = ranges["kind"].is_in(["backward", "engine"]).fill_null(value=False)
    if names.height:
        named = ranges.select("name").join(names, on="name", how="left", nulls_equal=True, maintain_order="left")[
            "says"
        ]
    else:
        named = pl.Series([None], dtype=PHASES).new_from_index(0, ranges.height)
    return named.set(is_backward, "backward")
