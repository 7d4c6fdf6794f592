"""A rule about nn.DataParallel, with which one process drives several devices. A process for each device would be
faster."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS, length, only, sum_by, union
from opspan.findings.hidden import unhidden
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of

_col = pl.col


def _data_parallel(run: Run, threshold: float) -> Iterator[Evidence]:
    several = run.devices_used.filter(_col("devices") > 1)  # with one device DataParallel does nothing
    calls = run.ranges_named(r"^DataParallel\.forward$").join(several, on=PROCESS, nulls_equal=True)
    if not calls.height:
        return
    others_ns = (length() * (1 - 1 / _col("devices"))).sum()
    rows = _busiest(run).join(calls.group_by(PROCESS).agg(others_ns=others_ns), on=PROCESS, nulls_equal=True)
    rows = rows.join(run.savings, on=PROCESS, how="left", nulls_equal=True)
    lost_ns = _col("idle_ns") + _col("exchange_ns") + _col("more_ns") - _col("left_ns")
    rows = rows.with_columns(ns=pl.min_horizontal(lost_ns, _col("saves_ns") + _col("others_ns")).cast(pl.Int64))
    for first in rows.sort("ns", descending=True).head(1).rows(named=True):  # no row if devices only copied
        if run.matters(first["ns"], threshold):
            figures = {"calls": calls.height, **{name: first[name] for name in ("idle_ns", "exchange_ns", "more_ns")}}
            figures |= {"idle_share": run.share(first["idle_ns"])}
            yield Evidence(first["ns"], figures, ranks=ranks_of(calls), ranges=ranges_of(calls))


def _busiest(run: Run) -> pl.DataFrame:
    """Returns for each process the device with most work of its own, usually the first device, and these times:
    idle_ns      time in which the device was idle before, during and after launches
    exchange_ns  time in which the device only exchanged data with other devices
    more_ns      time by which the device worked longer than the average device, without the optimizer, which runs
                 on one device
    left_ns      how much of the time for adding up gradients would stay exposed if each device had a process of its
                 own"""
    is_exchange = (_col("what") == "communicating") | _col("name").cast(pl.String).str.contains("PtoP")
    own = only(run.all_kernels, ~is_exchange.fill_null(value=False))
    parts = {"busy_ns": run.all_kernels, "own_ns": own, "optimizer_ns": own.filter(_col("phase") == "optimizer")}
    sums = [sum_by(union(part, DEVICE), DEVICE, **{name: length().sum()}) for name, part in parts.items()]
    idle = run.idle.filter(_col("cause").is_in(["host", "launch", "queued"]))
    # Separate processes add up all gradients on every device. That takes twice as long as on one device, because the
    # sums must go to all devices.
    twice = unhidden(run.collectives.with_columns(_col("exposed_ns") * 2))
    sums += [sum_by(idle, DEVICE, idle_ns=_col("ns").sum()), sum_by(twice, DEVICE, left_ns=_col("left_ns").sum())]
    rows = sums[0]
    for part in sums[1:]:
        rows = rows.join(part, on=DEVICE, how="left", nulls_equal=True)
    rows = rows.with_columns(_col("^.*_ns$").fill_null(0))
    divided = _col("own_ns") - _col("optimizer_ns")
    more_ns = (divided - divided.mean().over(PROCESS)).clip(0).cast(pl.Int64)
    rows = rows.with_columns(more_ns=more_ns, exchange_ns=_col("busy_ns") - _col("own_ns"))
    return rows.sort("own_ns", descending=True).unique(PROCESS, keep="first")


RULES = (
    Rule(
        id="data-parallel",
        title="DataParallel instead of DistributedDataParallel",
        looks_at="ranges DataParallel.forward of processes that use several devices, and of each process the device "
        "that has most to do: what it was idle for until and after launches, exchanged data with others for while it "
        "did nothing else, and had to do more than all on average, but for the optimizer; less what a backward would "
        "not hide of adding up gradients, and no more than what the host waited for devices and launched for others",
        threshold=0.05,
        because="a twentieth: one thread at a time launches for all devices, and the first does what is for all",
        sentence="DataParallel ran {calls} times; the device that has most to do was idle for {idle_ns} "
        "({idle_share}), exchanged data with others for {exchange_ns}, and worked {more_ns} longer than all on average",
        remedy="DistributedDataParallel, a process for each device: torchrun --nproc-per-node=...",
        command="opspan idle FILE",
        read="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
        look=_data_parallel,
    ),
)
