"""Finds the phase of each range: of training (forward, backward, optimizer, data) or of serving (prefill, decode, ...).

    phases(ranges) -> ranges with the column phase (Enum): null if the phase is unknown.

These ranges state a phase: ranges of kind backward and engine (backward), torch's Optimizer.step#... (optimizer) and
enumerate(DataLoader)#... (data), and ranges that the program named after a phase. A range has the phase that it states
itself. If it states none, it has the phase of the nearest range around it that states one. If there is no such range,
ops, modules and scripts are forward.

A step of a serving engine states the phase of everything inside it (`engine_labels`): prefill, decode, mixed (requests
of both) or diffusion. This phase counts even if ranges inside the step are named forward, for example. If the label of
the step does not tell the phase, the rules of training apply.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.engine_labels import SERVING_PHASES, engine_labels
from opspan.analysis.nest import nearest

_col = pl.col
PHASES = pl.Enum(["forward", "backward", "optimizer", "data", *SERVING_PHASES])

# The names that state each phase, in lower case. A name that the program chose must match completely.
_SAYS = {
    "optimizer": r"^(optimizer\.(step|zero_grad)(#.*)?|optimizer|optimizer[ _]step|zero[ _]grad)$",
    "data": r"^(enumerate\(dataloader\)#.*|data|data[ _]?load(ing|er)?|load[ _](data|batch))$",
    "backward": r"^(backward|backward[ _]pass|bwd)$",
    "forward": r"^(forward|forward[ _]pass|fwd)$",
}
_FORWARD_KINDS = ("op", "module", "script", "static_op", "static_model")


def phases(ranges: pl.DataFrame) -> pl.DataFrame:
    names = ranges["name"].unique()
    own = _own_phases(ranges, names)
    phase = own.gather(nearest(ranges, own.is_not_null()))
    may_be_forward = ranges["kind"].is_in(_FORWARD_KINDS).fill_null(value=False) & phase.is_null()
    return ranges.with_columns(_in_serving(ranges, names, phase.set(may_be_forward, "forward")).alias("phase"))


def _in_serving(ranges: pl.DataFrame, names: pl.Series, phase: pl.Series) -> pl.Series:
    """Returns the phases. In steps of serving engines, they are those of the engine's labels."""
    labels = engine_labels(names).select("name", _col("phase").cast(PHASES)).drop_nulls()
    if not labels.height:
        return phase
    rows = ranges.select("name").join(labels, on="name", how="left", maintain_order="left")
    served = rows["phase"].gather(nearest(ranges, rows["phase"].is_not_null()))
    return served.zip_with(served.is_not_null(), phase)


def says_phase(names: pl.Series) -> pl.Series:
    """Returns, for each name, whether it states a phase. Ranges with these names are parts of steps, never steps."""
    return names.is_in(_phase_of(names)["name"].implode()).fill_null(value=False)


def _phase_of(names: pl.Series) -> pl.DataFrame:
    """Returns the distinct names that state a phase, each with its phase (`says`)."""
    lower = pl.col("name").cast(pl.String).str.to_lowercase()
    says = pl.lit(None, dtype=PHASES)
    for phase, pattern in _SAYS.items():
        says = pl.when(lower.str.contains(pattern)).then(pl.lit(phase, dtype=PHASES)).otherwise(says)
    rows = names.alias("name").to_frame().select(pl.col("name").unique())
    return rows.with_columns(says.alias("says")).filter(pl.col("says").is_not_null())


def _own_phases(ranges: pl.DataFrame, names: pl.Series) -> pl.Series:
    stated = _phase_of(names)
    is_backward = ranges["kind"].is_in(["backward", "engine"]).fill_null(value=False)
    named = pl.Series([None], dtype=PHASES).new_from_index(0, ranges.height)
    if stated.height:
        rows = ranges.select("name").join(stated, on="name", how="left", nulls_equal=True, maintain_order="left")
        named = rows["says"]
    return named.set(is_backward, "backward")
