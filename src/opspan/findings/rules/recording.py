"""Rules about the recording itself: the cost of the profiler, memory near its limit, and missing information."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from opspan.analysis.busy import within_whole
from opspan.analysis.spans import PROCESS, length, number_groups, union
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run, ranks_of, top
from opspan.findings.saved import leave_out, saved_ns
from opspan.sources import MODULES, SHAPES, source_of

_col = pl.col
# CUPTI also reports a full queue of the driver, and loading of code, as overhead, but it does not cause them.
_NOT_ITS_OWN = r"(?i)command buffer full|lazy (function|module) loading|module loading"


def _overhead(run: Run, threshold: float) -> Iterator[Evidence]:
    work = run.trace.work.select("rank", "pid", "tid", "start_ns", "end_ns", "name", "is_overhead")
    is_own = ~_col("name").cast(pl.String).str.contains(_NOT_ITS_OWN).fill_null(value=False)
    rows = within_whole(work.filter(_col("is_overhead").fill_null(value=False)).filter(is_own), run.trace)
    rows = run.rows_in_usual_steps(rows, odd=True).with_columns(ns=length())
    if not rows.height:
        return
    at_stake = saved_ns(run, leave_out(run, stretches=_add_threads(run, rows)), threshold)
    if not run.matters(at_stake, threshold):
        return
    ns = run.longest(union(rows, PROCESS).with_columns(ns=length()), "ns")
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "times": rows.height},
        {"names": ", ".join(top(rows, "ns", "name"))},
        confidence="certain",
        **place_of(rows, "ns"),
    )


def _add_threads(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the thread of each row. If the file does not name a thread, takes the thread whose call into the driver ends
    next, because the profiler works in these calls."""
    calls = run.trace.calls.select(*PROCESS, "end_ns", called="tid").drop_nulls("end_ns").sort("end_ns")
    rows, calls = number_groups(PROCESS, rows.sort("end_ns"), calls)
    rows = rows.join_asof(
        calls.select("of", "end_ns", "called"), on="end_ns", by="of", strategy="forward", check_sortedness=False
    )
    return rows.with_columns(tid=pl.coalesce("tid", "called"))


def _memory(run: Run, threshold: float) -> Iterator[Evidence]:
    peaks = run.analysis.memory_peaks
    sizes = run.trace.devices.select("rank", "device_id", "memory_bytes").drop_nulls()
    used = "reserved_bytes" if "reserved_bytes" in peaks.columns else "allocated_bytes"
    rows = peaks.join(sizes, on=["rank", "device_id"])
    rows = rows.with_columns(share=pl.coalesce(used, "allocated_bytes") / _col("memory_bytes"))
    rows = rows.filter(_col("memory_bytes") > 0, _col("share") >= threshold).sort("share", descending=True)
    if rows.height:
        first = rows.row(0, named=True)
        figures = {"used_share": first["share"], "memory_bytes": first["memory_bytes"]}
        yield Evidence(None, figures, confidence="certain", ranks=ranks_of(rows))


def _unlabelled(run: Run, threshold: float) -> Iterator[Evidence]:
    coverage = run.analysis.coverage
    share = coverage.work_in_range
    # Graphs whose kernels or ops are unknown have rules of their own. But in a trace without ranges, the work of graphs
    # counts here as unlabelled, too.
    graphs = [coverage.work_in_whole_graphs, coverage.work_in_unknown_replays] if run.ranges.height else []
    known = share.fraction + sum(one.fraction for one in graphs if one.of)
    if share.of and known < threshold:
        kernels = share.of - share.count - sum(one.count for one in graphs)
        yield _missing_labels(run, "", {"known_share": known, "kernels": kernels})


def _without(column: str, options: str) -> Callable[[Run, float], Iterator[Evidence]]:
    def look(run: Run, threshold: float) -> Iterator[Evidence]:
        ops = run.ranges.select("kind", column).filter(_col("kind") == "op")
        if ops.height and ops[column].count() < threshold * ops.height:
            yield _missing_labels(run, options, {"known_share": ops[column].count() / ops.height, "ops": ops.height})

    return look


def _without_steps(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.steps.height < threshold:
        yield Evidence(None, {"time_ns": run.total_ns}, confidence="certain")


def _whole_graphs(run: Run, threshold: float) -> Iterator[Evidence]:
    graphs = run.kernels.filter(_col("kind") == "graph")
    ns = run.per_process(graphs, "ns")
    if graphs.height and run.share(ns) >= threshold:
        figures = {"graphs": graphs.height, "ns": ns, "ns_share": run.share(ns)}
        yield Evidence(None, figures, confidence="certain", ranks=ranks_of(graphs))


def _unknown_replays(run: Run, threshold: float) -> Iterator[Evidence]:
    replays = run.analysis.coverage.work_in_unknown_replays
    if replays.count and replays.fraction >= threshold:
        yield Evidence(None, {"device_share": replays.fraction, "kernels": replays.count}, confidence="certain")


def _missing_labels(run: Run, options: str, figures: dict[str, float]) -> Evidence:
    source = source_of(run.trace.ranks[0].source if run.trace.ranks else "")
    command = source.labelling(options) if source is not None else ""
    return Evidence(None, figures, confidence="certain", command=command)


_MISSING = "docs/emit.md"

RULES = (
    Rule(
        id="profiler-overhead",
        title="The profiler's own work",
        looks_at="time in which the profiler says that it was at work itself; at stake is how much sooner the run "
        "would have ended without that",
        threshold=0.02,
        because="a fiftieth of the time: more makes every other figure look worse than it is",
        sentence="the profiler itself was at work for {ns} ({ns_share}): {names}",
        remedy="Record fewer things (no stacks, no memory, no API traces that are not needed), or fewer steps, with "
        "larger buffers",
        command="opspan steps FILE",
        read=_MISSING,
        look=_overhead,
    ),
    Rule(
        id="memory-limit",
        title="Memory of a device nearly full",
        looks_at="the most memory that was in use, as a share of the device's",
        threshold=0.95,
        because="what is left is less than fragments take: the next larger batch ends the program",
        sentence="up to {used_share} of the {memory_bytes} of the device were in use",
        remedy="Checkpoint activations, shard the optimizer, smaller batches with accumulated gradients",
        command="opspan memory FILE --by block",
        read="https://docs.pytorch.org/docs/stable/torch_cuda_memory.html",
        look=_memory,
    ),
    Rule(
        id="unlabelled",
        title="Work of devices that belongs to no op",
        looks_at="the share of device time that was attributed to a range",
        threshold=0.5,
        because="a half: below that a table by op says more about what was labelled than about the program",
        sentence="only {known_share} of device time belongs to a range; {kernels} kernels and copies belong to none",
        remedy="Label every op while the same tool records",
        command="opspan table FILE --by kernel",
        read=_MISSING,
        look=_unlabelled,
    ),
    Rule(
        id="no-sizes",
        title="Ops without sizes",
        looks_at="the share of ops that have the sizes of their inputs",
        threshold=0.5,
        because="a half: floating-point operations and sizes that fit badly need them",
        sentence="{known_share} of {ops} ops have sizes, so nothing can be said of operations a second, or of sizes "
        "that fit badly",
        remedy="Record the sizes of inputs",
        command="opspan table FILE --by shape",
        read=_MISSING,
        look=_without("sizes", SHAPES),
    ),
    Rule(
        id="no-modules",
        title="Ops without modules",
        looks_at="the share of ops that are in a module",
        threshold=0.1,
        because="a tenth: optimizers and losses have none",
        sentence="{known_share} of {ops} ops are in a module, so no time can be given to parts of the model",
        remedy="Record modules",
        command="opspan table FILE --by module",
        read=_MISSING,
        look=_without("module", MODULES),
    ),
    Rule(
        id="no-steps",
        title="No steps",
        looks_at="how many steps there are",
        threshold=1,
        because="steps, not a share: without any, start and end of the program are counted with the loop",
        sentence="no steps were found, so all of {time_ns} is looked at, start and end of the program with it",
        remedy="Call step() of the session after each batch, or put a range around each and say --step NAME",
        command="opspan steps FILE",
        read="docs/analysis.md#iterations",
        look=_without_steps,
    ),
    Rule(
        id="whole-graphs",
        title="CUDA graphs recorded as wholes",
        looks_at="device time of graphs that are in the trace without their kernels",
        threshold=0.1,
        because="a tenth of the time: what runs in it cannot be told apart",
        sentence="{graphs} launches of graphs took {ns} ({ns_share}), and what ran in them is not in the file",
        remedy="Record the nodes of graphs: nsys profile --cuda-graph-trace=node",
        command="opspan table FILE --by kernel",
        read="docs/formats/nsys.md",
        look=_whole_graphs,
    ),
    Rule(
        id="unknown-replays",
        title="Graph replays without their ops",
        looks_at="device time of kernels that a launch of a graph started, and of which nothing says the op",
        threshold=0.1,
        because="a tenth of the time: it is in one row, that of the range around the launch",
        sentence="{device_share} of device time is in {kernels} kernels and copies of graph replays, and nothing says "
        "which ops they belong to",
        remedy="Record the capture of the graphs as well, and give the recording with --captures",
        command="opspan table FILE --by kernel",
        read="docs/graphs.md",
        look=_unknown_replays,
    ),
)
