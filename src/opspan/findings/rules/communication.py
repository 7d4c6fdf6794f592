"""Collectives that nothing hides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from opspan.analysis.spans import PROCESS, length
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top

_col = pl.col
_UNTOLD = 0.1  # of the time that nothing hides: of what the rest says little can be said of all
_MOST_OF = 0.5  # of the waiting: who causes more than all others together is a straggler
# Below these a collective takes as long as its latency: some ten microseconds, in which a link carries a megabyte.
_SMALL_BYTES, _SMALL_NS = 1 << 20, 30_000
_MANY = 10  # in a step


def _exposed(*, is_told: bool) -> Callable[[Run, float], Iterator[Evidence]]:
    """`is_told`: all but a tenth of it is of collectives that the other ranks' files have, too. Elsewhere nobody can
    tell what a rank sent from what it waited for."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        rows = run.devices
        exposed_ns = run.per_process(rows, "exposed_communicating_ns")
        if not exposed_ns:
            return
        alone_ns = run.per_process(run.collectives.filter(_col("match").is_null()), "exposed_ns")
        late_ns = run.per_process(run.collectives, "late_ns")
        at_stake = max(exposed_ns - late_ns, 0)
        if (alone_ns <= _UNTOLD * exposed_ns) != is_told or not run.matters(at_stake, threshold):
            return
        kernels = run.kernels.filter(_col("what") == "communicating")
        figures = {"exposed_ns": at_stake, "exposed_share": run.share(at_stake), "waiting_ns": late_ns}
        figures |= {"communicating_ns": run.per_process(rows, "communicating_ns"), "collectives": kernels.height}
        yield Evidence(
            at_stake,
            figures,
            confidence="certain" if is_told else "possible",
            ops=top(kernels, "ns", "op") or top(kernels, "ns", "name"),
            modules=top(kernels, "ns", "module"),
            steps=top(rows, "exposed_communicating_ns", "step"),
            ranks=ranks_of(rows.filter(_col("exposed_communicating_ns") > 0)),
            ranges=ranges_of(kernels),
        )

    return look


def _late(*, is_one: bool) -> Callable[[Run, float], Iterator[Evidence]]:
    """What ranks waited for others in collectives: for one process most of it, or for several."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        rows = run.collectives.filter(_col("match").is_not_null())
        waited = rows.group_by("match").agg(_col("late_ns").sum())
        last = rows.filter(_col("is_last")).select(*PROCESS, "match").join(waited, on="match")
        who = last.group_by(PROCESS).agg(_col("late_ns").sum(), times=pl.len())
        who = who.sort("late_ns", "rank", "pid", descending=[True, False, False])
        all_ns = int(who["late_ns"].sum())
        if not all_ns or (int(who["late_ns"][0]) > _MOST_OF * all_ns) != is_one:
            return
        who = who.head(1) if is_one else who
        of_them = last.join(who, on=PROCESS, how="semi", nulls_equal=True)
        rows = rows.filter(_col("late_ns") > 0).join(of_them, on="match", how="semi", maintain_order="left")
        at_stake = run.per_process(rows, "late_ns")
        if not run.matters(at_stake, threshold):
            return
        first = who.row(0, named=True)
        figures = {"waiting_ns": at_stake, "waiting_share": run.share(at_stake)}
        figures |= {"collectives": rows["match"].n_unique(), "times": int(first["times"])}
        yield Evidence(
            at_stake,
            figures,
            {"rank": str(first["rank"]), "process": str(first["pid"])},
            ops=top(rows, "late_ns", "op"),
            steps=top(rows, "late_ns", "step"),
            ranks=ranks_of(who.filter(_col("late_ns") > 0)),
            ranges=ranges_of(rows),
        )

    return look


def _small(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.collectives.with_columns(ns=pl.coalesce("transfer_ns", length()))
    # Where its size is not known, its time tells.
    is_small = pl.when(_col("bytes").is_not_null()).then(_col("bytes") < _SMALL_BYTES).otherwise(_col("ns") < _SMALL_NS)
    rows = rows.filter(is_small, _col("ns") > 0)
    at_stake = run.per_process(rows, "ns")
    per_step = rows.height / max(run.usual.height, 1)
    if not run.matters(at_stake, threshold) or per_step < _MANY:
        return
    figures = {"collectives": rows.height, "ns": at_stake, "ns_share": run.share(at_stake)}
    figures |= {"each_ns": int(rows["ns"].median() or 0), "per_step": round(per_step)}  # type: ignore[arg-type]
    yield Evidence(
        at_stake,
        figures,
        ops=top(rows, "ns", "op"),
        steps=top(rows, "ns", "step"),
        ranks=ranks_of(rows),
        ranges=ranges_of(rows),
    )


def _gloo(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.has_devices:
        return
    rows = run.called("^gloo:")
    rows = run.begun_in_usual(rows.with_columns(ns=_col("end_ns") - _col("start_ns"))).filter(_col("ns") > 0)
    at_stake = int(rows["ns"].sum())
    if run.matters(at_stake, threshold):
        yield Evidence(
            at_stake,
            {"ns": at_stake, "ns_share": run.share(at_stake), "collectives": rows.height},
            ops=top(rows, "ns", "name"),
            ranks=ranks_of(rows),
            ranges=ranges_of(rows),
        )


def _data_parallel(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.called(r"^DataParallel\.forward$")
    spread = run.idle.filter(_col("cause").is_in(["host", "launch", "queued"])) if run.has_devices else None
    at_stake = 0 if spread is None else run.per_process(spread, "ns")
    if rows.height and run.matters(at_stake, threshold):
        figures = {"calls": rows.height, "idle_ns": at_stake, "idle_share": run.share(at_stake)}
        yield Evidence(at_stake, figures, ranks=ranks_of(rows), ranges=ranges_of(rows))


_READ = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"

RULES = (
    Rule(
        id="exposed-communication",
        title="Communication that no computing hides",
        looks_at="time in which a collective ran on a device and nothing computed, less what it waited for "
        "another rank",
        threshold=0.1,
        because="the share at which the profiler's view in TensorBoard spoke of it",
        sentence="collectives ran for {communicating_ns}, {exposed_ns} of it ({exposed_share}) while nothing computed "
        "and no other rank was late",
        remedy="Overlap gradients with backward (DDP's buckets, FSDP's prefetch), accumulate gradients over several "
        "batches, send bfloat16, or make the batch larger",
        command="opspan comm FILE",
        read=_READ,
        look=_exposed(is_told=True),
        is_over_ranks=True,
    ),
    Rule(
        id="communication-or-waiting",
        title="Communication, or waiting for other ranks, that no computing hides",
        looks_at="the same where more than a tenth of that time is of collectives that no other file has: of one rank "
        "alone, nobody can tell what it sent from what it waited for",
        threshold=0.1,
        because="as for exposed-communication",
        sentence="collectives ran for {communicating_ns}, {exposed_ns} of it ({exposed_share}) while nothing computed; "
        "how much of that is waiting for other ranks is unknown, as their files are not here",
        remedy="Record all ranks of the job and give all files: then waiting is told apart, and the rank that is late",
        command="opspan comm FILE",
        read="docs/analysis.md#communication",
        look=_exposed(is_told=False),
        is_over_ranks=True,
    ),
    Rule(
        id="straggler",
        title="One rank is late, and the others wait",
        looks_at="time of collectives, while nothing computed, in which a rank waited for the last to come: where more "
        "than half of it is for one process; the last is the one whose part takes least",
        threshold=0.03,
        because="what ranks differ by when all is well, in the steps of a usual run, is less",
        sentence="the other ranks waited {waiting_ns} ({waiting_share}) for rank {rank} (process {process}), which "
        "came last to {times} of their collectives",
        remedy="Compare that rank with another (opspan diff): its data, its device's clock and temperature, its "
        "neighbours on the machine",
        command="opspan comm FILE --by rank",
        read="docs/analysis.md#communication",
        look=_late(is_one=True),
        is_over_ranks=True,
    ),
    Rule(
        id="uneven-ranks",
        title="Ranks wait for each other in turn",
        looks_at="time of collectives, while nothing computed, in which a rank waited for the last to come: where no "
        "process has more than half of it",
        threshold=0.05,
        because="some waiting is in every run, as no two steps are alike",
        sentence="ranks waited {waiting_ns} ({waiting_share}) for each other in {collectives} collectives, now for one "
        "and now for another",
        remedy="Give ranks batches of the same cost: samples of similar length together, packed sequences, the same "
        "number of experts' tokens",
        command="opspan comm FILE --by rank",
        read="docs/analysis.md#communication",
        look=_late(is_one=False),
        is_over_ranks=True,
    ),
    Rule(
        id="small-collectives",
        title="Many small collectives",
        looks_at="time of collectives of less than a megabyte (of less than 30 us, where the size is not known), of "
        "which a step has ten or more",
        threshold=0.02,
        because="a fiftieth of the time: less is lost among the steps' own differences",
        sentence="{collectives} small collectives took {ns} ({ns_share}): {per_step} a step, {each_ns} each, which is "
        "mostly latency",
        remedy="Put them together: larger buckets (DDP's bucket_cap_mb), one flat tensor, coalesced calls",
        command="opspan comm FILE --by size",
        read=_READ,
        look=_small,
        is_over_ranks=True,
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
