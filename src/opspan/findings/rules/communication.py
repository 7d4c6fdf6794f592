"""Rules about the time in which a collective ran and nothing else did."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS, length
from opspan.findings.hidden import unhidden
from opspan.findings.lateness import SIDES, late_by_far, loss_to, stragglers, waited_ns
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, median, ranges_of
from opspan.findings.run import Run, ranks_of, top
from opspan.findings.saved import in_time_ns, leave_out, saved_ns
from opspan.printable import listed

_col = pl.col
_UNEXPLAINED = 0.1  # share of the exposed time that may belong to collectives without the files of all ranks
_MOST_OF = 0.5  # share of the time that late ranks cost others: if one step has more than this, the finding names it
_STRAGGLER = 0.03
_SEVERAL = 2  # least number of late ranks, and least number of steps in which each of these ranks is late
_OFTEN = 0.25  # share of the steps: if fewer steps have a late rank, chance may be the reason
# A collective is small if it takes little more than its latency, about ten microseconds. A link transfers a megabyte in
# that time.
_SMALL_BYTES, _SMALL_NS = 1 << 20, 30_000
_MANY = 10  # least number of small collectives per step
_NEXT_NS = 500_000  # longest pause between two collectives on a host; in a longer pause the program does something else
_HARDLY = 0.1  # share of a collective's time: if less is exposed, the collective is left out


def _exposed(*, is_explained: bool) -> Callable[[Run, float], Iterator[Evidence]]:
    """Returns the function of a rule. With `is_explained`, the function looks only at runs in which at least nine
    tenths of the exposed time belong to collectives for which the files of all ranks are read. Without `is_explained`,
    the function looks only at the other runs: it is unknown how much of their exposed time is waiting."""

    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        rows, places = run.collectives, run.lateness
        is_part = (_col("group_size") > _col("ranks")) & ~_col("kind").is_in(SIDES)
        is_alone = _col("match").is_null() | is_part.fill_null(value=False)
        alone_ns, exposed_ns = int(rows.filter(is_alone)["exposed_ns"].sum()), int(rows["exposed_ns"].sum())
        if not exposed_ns or (alone_ns <= _UNEXPLAINED * exposed_ns) != is_explained:
            return
        places = places.with_columns(ns=_col("exposed_ns") - _col("waited_ns"))
        own_ns = _least_ns(run.means_per_process(places, "ns"))
        places = places.join(unhidden(rows), on=[*DEVICE, "step"], how="left", nulls_equal=True, maintain_order="left")
        places = places.with_columns(_col("ns") - _col("left_ns").fill_null(0).clip(0, _col("ns")))
        at_stake = _least_ns(_limit_to_savings(run, run.means_per_process(places, "ns")))
        if not run.matters(at_stake, threshold):
            return
        rows = rows.with_columns(ns=length())
        figures = {"exposed_ns": own_ns, "exposed_share": run.share(own_ns), "collectives": rows.height}
        waits = run.means_per_process(places.with_columns(ns=_col("waited_ns")), "ns")
        figures |= {"waiting_ns": int(waits["ns"].mean() or 0)}  # type: ignore[arg-type]  # a number
        figures |= {"communicating_ns": run.per_process(rows, "ns")}
        is_one = rows.select(DEVICE).n_unique() == 1 or rows.select(is_part.any()).item()
        why = "not all of their files are here" if is_one else "nothing tells which belong together"
        yield Evidence(
            at_stake,
            figures,
            {} if is_explained else {"why": why},
            confidence="certain" if is_explained else "possible",
            ops=top(rows, "ns", "op") or top(rows, "ns", "name"),
            modules=top(rows, "ns", "module"),
            steps=top(rows, "exposed_ns", "step"),
            ranks=ranks_of(rows.filter(_col("exposed_ns") > 0)),
            ranges=ranges_of(rows),
        )

    return look


def _least_ns(sums: pl.DataFrame) -> int:
    """Returns the time of the component with the largest time. A component is the processes that share collectives. Its
    time is the least `ns` of its processes, because each of them takes at least that time."""
    return int(sums.group_by("component").agg(_col("ns").min())["ns"].max() or 0)  # type: ignore[arg-type]


def _limit_to_savings(run: Run, sums: pl.DataFrame) -> pl.DataFrame:
    """Limits `sums` (rank, pid, ns) to what each process would gain if its devices took no time."""
    sums = sums.join(run.savings, on=PROCESS, how="left", nulls_equal=True)
    return sums.with_columns(ns=pl.min_horizontal("ns", "saves_ns")).drop("saves_ns")


def _has_ranks(run: Run) -> bool:
    """Returns whether several processes have collectives. The devices of one process are not ranks."""
    return run.collectives.select(PROCESS).n_unique() >= _SEVERAL


def _straggler(run: Run, threshold: float) -> Iterator[Evidence]:
    if not _has_ranks(run):
        return
    some = stragglers(run.lateness, threshold * run.total_ns)
    lost = loss_to(run.lateness, some)
    sums = lost.group_by("component").agg(_col("ns").sum())
    waiting_ns = int(sums["ns"].max() or 0)  # type: ignore[arg-type]  # a number
    at_stake = _limit_to_others(run, sums, some)
    if run.knows_waits and run.matters(at_stake, threshold) and some["device_id"].null_count() == 0:
        at_stake = min(at_stake, in_time_ns(run, some.select(PROCESS).unique()))
    if not run.matters(at_stake, threshold):
        return
    rows = run.collectives.filter(_col("match").is_not_null())
    of_them = rows.filter(_col("is_last")).join(some, on=DEVICE, how="semi", nulls_equal=True)
    matches = rows["match"].n_unique()
    rows = rows.with_columns(late_ns=waited_ns()).filter(_col("late_ns") > 0)
    rows = rows.join(of_them, on="match", how="semi", maintain_order="left")
    first = lost.sort("ns", descending=True).row(0, named=True)
    is_one = first["ns"] > _MOST_OF * waiting_ns
    one = first["step"] or ("one collective" if first["turn"] is not None else None)
    whose = some.select(PROCESS).unique(maintain_order=True)
    names = [f"rank {rank} (process {pid})" for rank, pid in whose.iter_rows()]
    yield Evidence(
        at_stake,
        {"waiting_ns": waiting_ns, "waiting_share": run.share(waiting_ns), "collectives": matches}
        | {"times": of_them["match"].n_unique()},
        {"who": listed(names), "when": f", most of it in {one}" if is_one and one else ""},
        ops=top(rows, "late_ns", "op"),
        steps=top(lost, "ns", "step"),
        ranks=tuple(some["rank"].unique().sort()),
        ranges=ranges_of(rows),
    )


def _limit_to_others(run: Run, lost: pl.DataFrame, some: pl.DataFrame) -> int:
    """Returns the largest loss in `lost` (component, ns). Each loss is limited to what the waiting processes could
    save: while the host of a waiting device is busy, the waiting costs nothing."""
    others = run.lateness.select(*DEVICE, "component").unique().join(some, on=DEVICE, how="anti", nulls_equal=True)
    others = others.join(run.savings, on=PROCESS, how="left", nulls_equal=True)
    lost = lost.join(others.group_by("component").agg(_col("saves_ns").max()), on="component", how="left")
    return int(lost.select(pl.min_horizontal("ns", "saves_ns").max()).item() or 0)


def _uneven(run: Run, threshold: float) -> Iterator[Evidence]:
    """Finds the time that ranks would save if all came at the mean time. The time lost to stragglers does not count."""
    if not _has_ranks(run):
        return
    yield from _in_turn(run, threshold)
    places = run.lateness.filter(_col("device_id").is_not_null())  # on a host, other programs may cause waiting
    some = stragglers(places, _STRAGGLER * run.total_ns)
    others = places.join(some, on=DEVICE, how="anti", nulls_equal=True)
    lost = loss_to(places, some).group_by("component").agg(_col("ns").sum())
    sums = others.group_by(*DEVICE, "component").agg(_col("late_ns").sum())
    sums = sums.group_by("component").agg(_col("late_ns").mean()).join(lost, on="component", how="left")
    at_stake = int(sums.select((_col("late_ns") - _col("ns").fill_null(0)).max()).item() or 0)
    if not run.matters(at_stake, threshold):
        return
    rows = run.collectives.filter(_col("match").is_not_null()).with_columns(late_ns=waited_ns())
    waited = rows.group_by("match").agg(_col("late_ns").sum()).filter(_col("late_ns") > 0)
    last = rows.filter(_col("is_last")).join(waited.select("match"), on="match", how="semi")
    rows = rows.filter(_col("late_ns") > 0)
    yield Evidence(
        at_stake,
        {"waiting_ns": at_stake, "waiting_share": run.share(at_stake), "collectives": waited.height},
        ops=top(rows, "late_ns", "op"),
        steps=top(rows, "late_ns", "step"),
        ranks=ranks_of(last),
        ranges=ranges_of(rows),
    )


def _in_turn(run: Run, threshold: float) -> Iterator[Evidence]:
    """Finds the time that processes without devices lose by waiting for ranks that come far too late. Reports it only
    if several ranks come far too late, in more steps than chance explains."""
    places = run.lateness.filter(_col("device_id").is_null(), _col("step").is_not_null())
    some = stragglers(places, _STRAGGLER * run.total_ns)
    steps = late_by_far(places).join(some, on=DEVICE, how="anti", nulls_equal=True)
    steps = steps.filter(pl.len().over(DEVICE) >= _SEVERAL)
    lost = loss_to(places, steps).filter(_col("ns") > 0)
    sums = lost.group_by("component").agg(_col("ns").sum())
    at_stake = int(sums["ns"].max() or 0)  # type: ignore[arg-type]  # a number
    whose = steps.group_by("rank", maintain_order=True).agg(steps=_col("step").n_unique())
    is_often = steps["step"].n_unique() >= _OFTEN * places["step"].n_unique()
    if whose.height < _SEVERAL or not is_often or not run.matters(at_stake, threshold):
        return
    rows = run.collectives.with_columns(late_ns=waited_ns()).filter(_col("late_ns") > 0)
    yield Evidence(
        at_stake,
        {"waiting_ns": at_stake, "waiting_share": run.share(at_stake), "steps": steps["step"].n_unique()},
        {"who": listed([f"rank {rank} in {count} steps" for rank, count in whose.iter_rows()])},
        ops=top(rows, "late_ns", "op"),
        steps=top(lost, "ns", "step"),
        ranks=tuple(whose["rank"]),
        ranges=ranges_of(rows),
        sentence="in {steps} steps a rank came late by far, now one and now another ({who}), and the "
        "others waited {waiting_ns} ({waiting_share}) for it",
    )


def _small(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.collectives.height:
        return
    # Sends to another rank cannot be merged, because the receiver needs the data of each send to continue.
    rows = run.collectives.filter(~_col("kind").is_in(SIDES).fill_null(value=False))
    rows = rows.with_columns(ns=pl.coalesce("transfer_ns", length()))
    # If the size is unknown, the time shows whether a collective is small.
    is_small = pl.when(_col("bytes").is_not_null()).then(_col("bytes") < _SMALL_BYTES).otherwise(_col("ns") < _SMALL_NS)
    rows = rows.filter(is_small, _col("ns") > 0)
    # A host that calls collectives one after the other waits only because other ranks call collectives later. Merging
    # saves that waiting and the time between the collectives, so both count.
    is_next = (_col("before_ns") <= _NEXT_NS).fill_null(value=False)
    bare_ns = _col("exposed_ns") - waited_ns()
    own_ns = pl.when(is_next).then(_col("exposed_ns") + _col("before_ns")).otherwise(bare_ns)
    own = rows.with_columns(own_ns=own_ns, bare_ns=bare_ns).sort("start_ns")
    # Leave out collectives with hardly any exposed time, such as the gap between two kernels.
    own = own.filter(_col("own_ns") > _HARDLY * _col("ns"))
    steps = own.group_by(*DEVICE, "step").agg(_col("own_ns", "bare_ns").sum(), last_ns=_col("own_ns").last())
    exposed_ns = run.per_process(steps, "bare_ns")
    # After merging, one collective would stay exposed.
    at_stake = run.per_process(steps.with_columns(ns=_col("own_ns") - _col("last_ns")), "ns")
    if run.knows_waits and run.matters(at_stake, threshold) and rows["work"].null_count() == 0:
        more = rows.filter(_col("start_ns") < _col("start_ns").max().over(*DEVICE, "step"))
        at_stake = saved_ns(run, leave_out(run, work=more["work"]))
    per_step = rows.height / max(run.steps.height, 1)
    if not run.matters(at_stake, threshold) or per_step < _MANY:
        return
    figures = {"collectives": rows.height, "exposed_ns": exposed_ns, "exposed_share": run.share(exposed_ns)}
    figures |= {"each_ns": median(rows, "ns"), "per_step": round(per_step)}
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
    rows = run.ranges_named("^gloo:")
    if not rows.height:
        return
    rows = rows_in_steps(run, rows.with_columns(ns=length())).filter(_col("ns") > 0)
    at_stake = saved_ns(run, leave_out(run, stretches=rows), threshold)
    if run.matters(at_stake, threshold):
        ns = run.longest(rows, "ns")
        yield Evidence(
            at_stake,
            {"ns": ns, "ns_share": run.share(ns), "collectives": rows.height},
            ops=top(rows, "ns", "name"),
            ranks=ranks_of(rows),
            ranges=ranges_of(rows),
        )


_READ = "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"

RULES = (
    Rule(
        id="exposed-communication",
        title="Communication that no computing hides",
        looks_at="time in which a collective ran and nothing else did, less what was waiting for another rank, of the "
        "rank that has least of it; without a device nothing else runs when no op does. At stake is no more of it than "
        "the host waited for its device, and of collectives that all began after the backward what would be hidden if "
        "each had begun when its part of the backward was done",
        threshold=0.1,
        because="the share at which the profiler's view in TensorBoard spoke of it",
        sentence="collectives ran for {communicating_ns}, {exposed_ns} of it ({exposed_share}) while nothing computed "
        "and no other rank was late",
        remedy="Overlap gradients with backward (DDP's buckets, FSDP's prefetch), accumulate gradients over several "
        "batches, send bfloat16, or make the batch larger",
        command="opspan comm FILE",
        read=_READ,
        look=_exposed(is_explained=True),
        is_over_ranks=True,
    ),
    Rule(
        id="communication-or-waiting",
        title="Communication, or waiting for other ranks, that no computing hides",
        looks_at="the same where more than a tenth of that time is of collectives for which files of their ranks are "
        "missing: without these, nobody can tell what was sent from what was waiting",
        threshold=0.1,
        because="as for exposed-communication",
        sentence="collectives ran for {communicating_ns}, {exposed_ns} of it ({exposed_share}) while nothing computed; "
        "how much of that is waiting for other ranks is unknown, as {why}",
        remedy="Record all ranks of the job and give all files: then waiting is told apart, and the rank that is late",
        command="opspan comm FILE",
        read="docs/analysis.md#communication",
        look=_exposed(is_explained=False),
        is_over_ranks=True,
    ),
    Rule(
        id="straggler",
        title="Ranks are late, and the others wait",
        looks_at="time in which ranks waited in collectives and nothing else ran; a rank is late that waits by the "
        "threshold less than most do, and at stake is what all others wait for it, step by step, "
        "but no more than they would gain if devices took no time, or, where the files of all ranks are read together, "
        "if no collective waited for it; what the fill of an even pipeline makes all ranks wait is not counted. A run "
        "on hosts without steps is compared collective by collective, without the wait of the first one for ranks that "
        "begin later; there a rank is late if that is beyond chance. Clocks need not agree: how long a collective took "
        "on each rank says who came last",
        threshold=_STRAGGLER,
        because="what ranks differ by when all is well, in the steps of a usual run, is less",
        sentence="the other ranks waited {waiting_ns} ({waiting_share}) for {who}{when}; they came last to {times} of "
        "{collectives} collectives",
        remedy="Compare that rank with another (opspan diff): its data, its device's clock and temperature, its "
        "neighbours on the machine",
        command="opspan comm FILE --by rank",
        read="docs/analysis.md#communication",
        look=_straggler,
        is_over_ranks=True,
    ),
    Rule(
        id="uneven-ranks",
        title="Ranks wait for each other in turn",
        looks_at="the same time on devices, less what is lost to ranks that are late; at stake is the mean of the "
        "ranks, which would be gone if all had the same work. On hosts it is mostly chance: there only steps count in "
        "which a rank came later than most by far more than its steps otherwise differ, where at least a quarter of "
        "the steps are such, of two ranks or more; at stake is what all others waited in these, as the next to come "
        "would hold them up then",
        threshold=0.05,
        because="some waiting is in every run, as no two steps are alike",
        sentence="a rank waited {waiting_ns} ({waiting_share}) in {collectives} collectives, now for one other and now "
        "for another",
        remedy="Give ranks batches of the same cost: samples of similar length together, packed sequences, the same "
        "number of experts' tokens",
        command="opspan comm FILE --by rank",
        read="docs/analysis.md#communication",
        look=_uneven,
        is_over_ranks=True,
    ),
    Rule(
        id="small-collectives",
        title="Many small collectives",
        looks_at="time of collectives of less than a megabyte (of less than 30 us, where the size is not known) in "
        "which nothing else ran and no other rank was late, where a step has ten or more; at stake is how much sooner "
        "the run would be done if each step had but the last one; on hosts, and where ranks are read one by one, what "
        "all others took, on hosts with what lies between those that follow each other",
        threshold=0.02,
        because="a fiftieth of the time: less is lost among the steps' own differences",
        sentence="{collectives} small collectives took {exposed_ns} ({exposed_share}) in which nothing else ran: "
        "{per_step} a step, {each_ns} each, which is mostly latency",
        remedy="Put them together: larger buckets (DDP's bucket_cap_mb), one flat tensor, coalesced calls",
        command="opspan comm FILE --by size",
        read=_READ,
        look=_small,
        is_over_ranks=True,
    ),
    Rule(
        id="gloo-on-devices",
        title="Collectives of a program with devices that go through the host",
        looks_at="ranges of gloo, of processes that use a device; at stake is how much sooner the run would have ended "
        "if these took no time",
        threshold=0.02,
        because="a fiftieth: below that it may be for counts and flags alone, which is as it should be",
        sentence="{collectives} collectives of gloo took {ns} ({ns_share}), and devices were at hand",
        remedy='init_process_group("nccl") for tensors on devices; "cpu:gloo,cuda:nccl" for both',
        command="opspan comm FILE",
        read="https://docs.pytorch.org/docs/stable/distributed.html#which-backend-to-use",
        look=_gloo,
    ),
)
