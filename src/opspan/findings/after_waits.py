"""Idle time that a wait of the host explains: what the host launched late because it had waited before.

    given(pieces, amount, by, causes, cause) -> pieces, with up to `amount` for each of `by` given to another cause
    after_waits(pieces, waits, steps, causes) -> pieces, with what waits explain given to the cause `wait`

Had the host not waited, it would be ahead of the device by as long as it waited, and what came late would have been
there in time. So a wait explains the late time that follows it, in order, until as much was late as the host waited;
of two waits with little between them both count. A wait explains nothing of what was launched before it was over, such
as what it waited for. In a process with steps it counts until the first wait of the next step: each step would
otherwise hand on what it did not use, and a single pause be laid to all steps before it. Without steps it counts until
the next wait.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS, numbered, within

_col = pl.col


def given(pieces: pl.DataFrame, amount: str, by: tuple[str, ...], causes: tuple[str, ...], cause: str) -> pl.DataFrame:
    """The earliest first."""
    may_be = _col("cause").is_in(causes) & (_col(amount) > 0)
    some = pieces.filter(may_be).sort(*by, "at_ns", "gap", maintain_order=True)
    if not some.height:
        return pieces
    whole = _col("ns").cum_sum() - _col("ns")
    is_first = pl.any_horizontal(_col(name).ne_missing(_col(name).shift(1)) for name in by)
    is_first |= pl.int_range(pl.len()) == 0
    before = whole - pl.when(is_first).then(whole).forward_fill()
    some = some.with_columns(part_ns=(_col(amount) - before).clip(0, _col("ns")))
    return pl.concat([pieces.filter(~may_be.fill_null(value=False)), _parted(some, cause)])


def _parted(some: pl.DataFrame, cause: str, **more: pl.Expr) -> pl.DataFrame:
    """With `part_ns` of each as a row of its own, of another cause."""
    part = some.with_columns(ns=_col("part_ns"), cause=pl.lit(cause, dtype=some.schema["cause"]), **more)
    rest = some.with_columns(ns=_col("ns") - _col("part_ns"))
    return pl.concat([rest, part]).filter(_col("ns") > 0).drop("part_ns")


def after_waits(
    pieces: pl.DataFrame, waits: pl.DataFrame, steps: pl.DataFrame, causes: tuple[str, ...]
) -> pl.DataFrame:
    """`pieces`: DEVICE, gap, at_ns, launched_ns: when what ended the gap was launched, ns, cause, and as wait null,
    where the reason is put; `waits`: PROCESS, start_ns, end_ns, wait_ns, which may be 0, and as wait the reason."""
    if not waits.height:
        return pieces
    reasons = waits.group_by("wait").agg(_col("wait_ns").sum()).sort("wait_ns", "wait", descending=[True, False])
    for reason in reasons["wait"]:
        may_be = (_col("cause").is_in(causes) & _col("launched_ns").is_not_null()).fill_null(value=False)
        some = pieces.filter(may_be)
        if not some.height:
            break
        some = some.with_columns(part_ns=_explained(some, waits.filter(_col("wait") == reason), steps))
        parted = _parted(some, "wait", wait=pl.lit(reason, dtype=pieces.schema["wait"]))
        pieces = pl.concat([pieces.filter(~may_be), parted])
    return pieces


def _explained(pieces: pl.DataFrame, waits: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """How much of each piece these waits explain."""
    some = pieces.select(*DEVICE, "at_ns", "gap", time_ns="launched_ns", change=-_col("ns"))
    some = some.with_row_index("piece").with_columns(is_new=pl.lit(value=False))
    devices = some.select(DEVICE).unique()
    begins = waits.with_columns(is_new=_begins_anew(waits, steps))
    begins = begins.join(devices, on=PROCESS, nulls_equal=True)
    begins = begins.select(*DEVICE, "is_new", time_ns="end_ns", change="wait_ns")
    both = pl.concat([begins, some], how="diagonal_relaxed")
    (both,) = numbered(DEVICE, both)
    # At one moment waits come first: what is launched when a wait is over comes after it.
    both = both.sort("of", "time_ns", _col("piece").is_not_null(), "at_ns", "gap")
    both = both.with_columns(part=_col("is_new").cum_sum().over("of"))
    # What is left of the waits is a sum that is never less than nothing.
    total = _col("change").cast(pl.Int128).cum_sum()  # times of odd files may be as long as numbers go
    left = (total - total.cum_min().clip(upper_bound=0)).over("of", "part")
    both = both.with_columns(left=left)
    used = _col("left").shift(1, fill_value=0).over("of", "part") - _col("left")
    return both.with_columns(used=used.cast(pl.Int64)).drop_nulls("piece").sort("piece")["used"]


def _begins_anew(waits: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Whether what waits before this one explained is over: it is the first of its step, or of a process without."""
    rows = waits.select(*PROCESS, "start_ns").with_row_index("wait")
    pairs = within(rows, "start_ns", steps, PROCESS)
    places = pl.DataFrame({"wait": pairs["row"], "step": pairs["stretch"]}).unique("wait", keep="first")
    rows = rows.join(places, on="wait", how="left").join(
        steps.select(PROCESS).unique().with_columns(has_steps=pl.lit(value=True)),
        on=PROCESS,
        how="left",
        nulls_equal=True,
    )
    rows = rows.sort("start_ns", "wait")
    is_first = _col("step").is_not_null() & _col("step").is_first_distinct()
    return rows.select("wait", new=is_first | _col("has_steps").is_null()).sort("wait")["new"]
