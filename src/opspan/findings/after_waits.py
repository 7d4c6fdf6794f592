"""Finds how much of the devices' idle time comes from earlier waits of the host: after a wait, the host launches late.

    assign(pieces, amount, by, causes, cause) -> pieces (parts of idle time) in which `cause` replaces the `causes`, in
        each group of the columns `by` for at most the nanoseconds in the column `amount`
    after_waits(pieces, waits, steps, causes) -> pieces in which the cause `wait` replaces the `causes`, for the time
        that waits explain

Without a wait the host would have been ahead of the device by the length of the wait, and late launches would have been
in time. So a wait explains as much of the idle time after it as the wait was long, the earliest first. A gap is not
explained if the work after it was launched before the wait ended. In a process with steps, the waits of a step add up,
and count until the first wait of the next step. If they counted longer, one long wait would explain idle time in all
later steps. In a process without steps, a wait counts until the next wait.
"""

from __future__ import annotations

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS, number_groups, within

_col = pl.col


def assign(pieces: pl.DataFrame, amount: str, by: tuple[str, ...], causes: tuple[str, ...], cause: str) -> pl.DataFrame:
    """Gives `cause` to the earliest pieces of each group, up to the nanoseconds in the column `amount`."""
    may_be = _col("cause").is_in(causes) & (_col(amount) > 0)
    some = pieces.filter(may_be).sort(*by, "at_ns", "gap", maintain_order=True)
    if not some.height:
        return pieces
    total = _col("ns").cum_sum() - _col("ns")
    is_first = pl.any_horizontal(_col(name).ne_missing(_col(name).shift(1)) for name in by)
    is_first |= pl.int_range(pl.len()) == 0
    before = total - pl.when(is_first).then(total).forward_fill()
    some = some.with_columns(part_ns=(_col(amount) - before).clip(0, _col("ns")))
    return pl.concat([pieces.filter(~may_be.fill_null(value=False)), _split_part(some, cause)])


def _split_part(some: pl.DataFrame, cause: str, **more: pl.Expr) -> pl.DataFrame:
    """Splits each row in two. A part of `part_ns` nanoseconds gets `cause`. The rest keeps its old cause."""
    part = some.with_columns(ns=_col("part_ns"), cause=pl.lit(cause, dtype=some.schema["cause"]), **more)
    rest = some.with_columns(ns=_col("ns") - _col("part_ns"))
    return pl.concat([rest, part]).filter(_col("ns") > 0).drop("part_ns")


def after_waits(
    pieces: pl.DataFrame, waits: pl.DataFrame, steps: pl.DataFrame, causes: tuple[str, ...]
) -> pl.DataFrame:
    """Splits pieces of idle time if waits explain a part of them, and sets `wait` in that part to the reason of the
    wait. The columns of `pieces` are DEVICE, gap, at_ns, ns, cause, launched_ns (when the work after the gap was
    launched) and `wait`, which is null at first. The columns of `waits` are PROCESS, start_ns, end_ns, wait_ns (may be
    0), and `wait`, the reason."""
    if not waits.height:
        return pieces
    reasons = waits.group_by("wait").agg(_col("wait_ns").sum()).sort("wait_ns", "wait", descending=[True, False])
    for reason in reasons["wait"]:
        may_be = (_col("cause").is_in(causes) & _col("launched_ns").is_not_null()).fill_null(value=False)
        some = pieces.filter(may_be)
        if not some.height:
            break
        some = some.with_columns(part_ns=_explained_ns(some, waits.filter(_col("wait") == reason), steps))
        parted = _split_part(some, "wait", wait=pl.lit(reason, dtype=pieces.schema["wait"]))
        pieces = pl.concat([pieces.filter(~may_be), parted])
    return pieces


def _explained_ns(pieces: pl.DataFrame, waits: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Returns how many nanoseconds of each piece these waits explain."""
    some = pieces.select(*DEVICE, "at_ns", "gap", time_ns="launched_ns", change=-_col("ns"))
    some = some.with_row_index("piece").with_columns(is_new=pl.lit(value=False))
    devices = some.select(DEVICE).unique()
    begins = waits.with_columns(is_new=_begins_anew(waits, steps))
    begins = begins.join(devices, on=PROCESS, nulls_equal=True)
    begins = begins.select(*DEVICE, "is_new", time_ns="end_ns", change="wait_ns")
    both = pl.concat([begins, some], how="diagonal_relaxed")
    (both,) = number_groups(DEVICE, both)
    # At equal times waits come first, because a launch follows the end of a wait.
    both = both.sort("of", "time_ns", _col("piece").is_not_null(), "at_ns", "gap")
    both = both.with_columns(part=_col("is_new").cum_sum().over("of"))
    # Waits add to a running sum, and the idle time that they explain is subtracted. The sum never falls below zero.
    total = _col("change").cast(pl.Int128).cum_sum()  # times in damaged files may be as large as an integer allows
    both = both.with_columns(left=(total - total.cum_min().clip(upper_bound=0)).over("of", "part"))
    used = _col("left").shift(1, fill_value=0).over("of", "part") - _col("left")
    return both.with_columns(used=used.cast(pl.Int64)).drop_nulls("piece").sort("piece")["used"]


def _begins_anew(waits: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Returns for each wait whether earlier waits stop counting once this wait has ended. That is true for the first
    wait of a step, and for each wait of a process without steps."""
    rows = waits.select(*PROCESS, "start_ns").with_row_index("wait")
    pairs = within(rows, "start_ns", steps, PROCESS)
    places = pl.DataFrame({"wait": pairs["row"], "step": pairs["stretch"]}).unique("wait", keep="first")
    processes = steps.select(PROCESS).unique().with_columns(has_steps=pl.lit(value=True))
    rows = rows.join(places, on="wait", how="left").join(processes, on=PROCESS, how="left", nulls_equal=True)
    rows = rows.sort("start_ns", "wait")
    is_first = _col("step").is_not_null() & _col("step").is_first_distinct()
    return rows.select("wait", new=is_first | _col("has_steps").is_null()).sort("wait")["new"]
