"""Collectives that nothing hides."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top

_col = pl.col


def _exposed(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.devices
    at_stake = run.per_process(rows, "exposed_communicating_ns")
    if not at_stake or run.share(at_stake) < threshold:
        return
    collectives = run.kernels.filter(_col("what") == "communicating")
    figures = {"exposed_ns": at_stake, "exposed_share": run.share(at_stake)}
    figures |= {"communicating_ns": run.per_process(rows, "communicating_ns"), "collectives": collectives.height}
    yield Evidence(
        at_stake,
        figures,
        confidence="certain",
        ops=top(collectives, "ns", "op") or top(collectives, "ns", "name"),
        modules=top(collectives, "ns", "module"),
        steps=top(rows, "exposed_communicating_ns", "step"),
        ranks=ranks_of(rows.filter(_col("exposed_communicating_ns") > 0)),
        ranges=ranges_of(collectives),
    )


def _gloo(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.has_devices:
        return
    rows = run.ranges.filter(_col("name").cast(pl.String).str.starts_with("gloo:"))
    rows = run.begun_in_usual(rows.with_columns(ns=_col("end_ns") - _col("start_ns"))).filter(_col("ns") > 0)
    at_stake = int(rows["ns"].sum())
    if at_stake and run.share(at_stake) >= threshold:
        yield Evidence(
            at_stake,
            {"ns": at_stake, "ns_share": run.share(at_stake), "collectives": rows.height},
            ops=top(rows, "ns", "name"),
            ranks=ranks_of(rows),
            ranges=ranges_of(rows),
        )


def _data_parallel(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.ranges.filter(_col("name").cast(pl.String) == "DataParallel.forward")
    spread = run.idle.filter(_col("cause").is_in(["host", "launch", "queued"])) if run.has_devices else None
    at_stake = 0 if spread is None else run.per_process(spread, "ns")
    if rows.height and at_stake and run.share(at_stake) >= threshold:
        figures = {"calls": rows.height, "idle_ns": at_stake, "idle_share": run.share(at_stake)}
        yield Evidence(at_stake, figures, ranks=ranks_of(rows), ranges=ranges_of(rows))


_READ = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"

RULES = (
    Rule(
        id="exposed-communication",
        title="Communication that no computing hides",
        looks_at="time in which a collective ran on a device and nothing computed",
        threshold=0.1,
        because="the share at which the profiler's view in TensorBoard spoke of it",
        sentence="collectives ran for {communicating_ns}, {exposed_ns} of it ({exposed_share}) while nothing computed",
        remedy="Overlap gradients with backward (DDP's buckets, FSDP's prefetch), accumulate gradients over several "
        "batches, send bfloat16, or make the batch larger",
        command="opspan comm FILE",
        read=_READ,
        look=_exposed,
    ),
    Rule(
        id="gloo-on-devices",
        title="Collectives of a program with devices that go through the host",
        looks_at="time in ranges of gloo, of processes that use a device",
        threshold=0.02,
        because="a fiftieth: below that it may be for counts and flags alone, which is as it should be",
        sentence="{collectives} collectives of gloo took {ns} ({ns_share}), and devices were at hand",
        remedy='init_process_group("nccl") for tensors on devices; "cpu:gloo,cuda:nccl" for both',
        command="opspan comm FILE",
        read="https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use",
        look=_gloo,
    ),
    Rule(
        id="data-parallel",
        title="DataParallel instead of DistributedDataParallel",
        looks_at="ranges DataParallel.forward; at stake is what devices were idle for until and after launches",
        threshold=0.05,
        because="a twentieth: one thread launches for all devices, and shows as idle time",
        sentence="DataParallel ran {calls} times, and its devices were idle for {idle_ns} ({idle_share})",
        remedy="DistributedDataParallel, a process for each device: torchrun --nproc-per-node=...",
        command="opspan idle FILE",
        read=_READ,
        look=_data_parallel,
    ),
)
