"""The phases of a serving engine's steps (prefill, decode, ...): steps, tokens, and the time for a token.

    says(steps) -> for each step, what the engine's label says about it, and its rates.
    parts(steps) -> the sums over the steps of each phase, in a form that can be added up over ranks (Parts).
    phases(parts) -> one row for each phase. phases_texts(parts) -> the same as texts.

The time of a step ends when all work that it launched is done (`until_done`). It begins when the step starts or, if
that is later, when the step before is done. So no time counts twice, although the host runs ahead. The time for a token
is the time of steps whose tokens are known, divided by their tokens. The ranks of a tensor parallel job compute the
same tokens together. Each rank's tokens and time count, so the time for a token is that of one rank.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.engine_labels import SERVING_PHASES, labels_of_steps
from opspan.analysis.parts import Part, Parts
from opspan.analysis.spans import PROCESS
from opspan.views.fields import PHASE, Field, time_text

_col = pl.col
_PHASES = "phases"
SAYS = ("phase", "tokens", "requests", "batch_size")
FIELDS = (
    Field(
        "took_ns", "Until done", "ns", "From when the step before was done until all that this step launched was done"
    ),
    PHASE,
    Field("tokens", "Tokens", "count"),
    Field("requests", "Requests", "count"),
    Field("token_ns", "Time/token", "ns", "The time until done, by the tokens"),
    Field("tokens_per_s", "Tokens/s", "number"),
)
# The columns of `phases`.
OF_PHASE = (
    PHASE,
    Field("steps", "Steps", "count"),
    Field("took_ns", "Time/step", "ns", FIELDS[0].help),
    Field("tokens", "Tokens/step", "number"),
    *FIELDS[-2:],
)
_RATES = {
    "token_ns": _col("took_ns") / pl.when(_col("tokens") > 0).then("tokens"),
    "tokens_per_s": _col("tokens") * 1e9 / pl.when(_col("took_ns") > 0).then("took_ns"),
}
_NO_PHASE = "no phase"


def says(steps: pl.DataFrame) -> pl.DataFrame:
    """Returns what the label of each step says: phase, tokens, requests, batch_size; and the rates token_ns and
    tokens_per_s."""
    labels = labels_of_steps(steps["step"]).select(_col("phase").cast(pl.String), *SAYS[1:])
    return labels.with_columns(steps["took_ns"]).select(*SAYS, **_RATES)


def parts(steps: pl.DataFrame) -> Parts:
    """Returns the sums over the steps of each process and phase. `steps` has rank, pid, step and took_ns."""
    labels = labels_of_steps(steps["step"])
    rows = pl.concat([steps.select(*PROCESS, "took_ns"), labels.select("engine", "phase", "tokens")], how="horizontal")
    rows = rows.filter(_col("engine").is_not_null()).with_columns(_col("phase").cast(pl.String).fill_null(""))
    key = (*PROCESS, "phase")
    counted = _col("tokens").is_not_null()
    sums = rows.group_by(key, maintain_order=True).agg(
        steps=pl.len().cast(pl.Int64),
        took_ns=_col("took_ns").sum(),
        tokens=_col("tokens").sum(),
        counted=counted.sum().cast(pl.Int64),
        counted_ns=_col("took_ns").filter(counted).sum(),
    )
    return {_PHASES: Part(sums, key)}


def phases(parts: Parts) -> pl.DataFrame:
    """Returns for each phase: phase ("" if unknown), steps (how many the process with the most has), took_ns (the mean
    time of a step), tokens (the mean of a step, null if unknown), token_ns and tokens_per_s."""
    order = pl.Enum([*SERVING_PHASES, ""])
    rows = (
        parts[_PHASES]
        .rows.group_by("phase")
        .agg(
            _col("steps").max(),
            took_ns=_col("took_ns").sum() / _col("steps").sum(),
            tokens=_col("tokens").sum() / pl.when(_col("counted").sum() > 0).then(_col("counted").sum()),
            all_ns=_col("counted_ns").sum(),
            all=_col("tokens").sum(),
        )
    )
    rows = rows.sort(_col("phase").cast(order))
    of_all = rows.select(tokens="all", took_ns="all_ns").select(**_RATES)
    return pl.concat([rows.drop("all", "all_ns"), of_all], how="horizontal")


def phases_texts(parts: Parts) -> dict[str, str]:
    """Returns for each phase a text like "120 x 3.125ms (10,240 tokens/s, 97.656us/token)"."""
    texts = {}
    for row in phases(parts).iter_rows(named=True):
        text = f"{row['steps']:,} x {time_text(row['took_ns'])}"
        if row["token_ns"] is not None and row["tokens_per_s"] is not None:
            text += f" ({_rate(row['tokens_per_s'])} tokens/s, {time_text(row['token_ns'])}/token)"
        texts[row["phase"] or _NO_PHASE] = text
    return texts


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.2f}"
