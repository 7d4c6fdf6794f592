"""Rules about the threads on which torch runs each op of programs without devices: one thread alone, or more threads
than there are processors. Captures state the numbers of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import polars as pl

from opspan.analysis.samples import FEW
from opspan.analysis.spans import PROCESS, THREAD, distinct, sum_by, within
from opspan.findings.process_facts import ProcessFacts, facts_of
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run
from opspan.findings.sampled import samples_of

_col = pl.col
# Products of matrices, convolutions and attention: torch divides them among threads. Ops around them have no time of
# their own.
_HEAVY = (
    r"aten::(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|mkldnn_linear|mkldnn_convolution|convolution_backward"
    r"|_?slow_conv\w*|thnn_conv\w*|_scaled_dot_product_\w+_for_cpu(_backward)?|_fused_\w*linear\w*)$"
)
_LEAST_NS = 200_000  # to wake threads and to wait for them takes some 10 us: a twentieth of such an op
_OTHERS = 0.05  # of the CPU time in these ops: so many samples of other threads prove that one does not do all
_WORKING = 0.1  # share of a process's time in such ops from which on its threads count as competing


def _heavy(run: Run) -> pl.DataFrame:
    """Returns the calls of ops that are worth dividing among threads, in usual steps."""
    return run.memo("heavy ops", lambda: [_heavy_rows(run)])[0]


def _heavy_rows(run: Run) -> pl.DataFrame:
    rows = run.ranges_named(_HEAVY).filter(_col("kind") == "op", _col("self_ns") >= _LEAST_NS)
    return run.rows_in_usual_steps(rows).with_columns(op="name")


def _one_thread(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.has_devices or _has_other_ranks(run):
        return
    for facts in facts_of(run):
        if facts.threads != 1 or facts.usable is None:
            continue
        rows = _of_process(_heavy(run), facts)
        heavy_ns = int(rows["self_ns"].sum())
        # With as many processes as processors, each of them should use one thread.
        is_free = facts.usable >= 2 * _processes_of(run, facts.host)
        if not (is_free and run.matters(heavy_ns / 2, threshold) and rows["tid"].n_unique() == 1):
            continue
        others = _sampled_elsewhere(run, rows)
        if others is not None and others > _OTHERS:
            continue
        figures = {
            "heavy_ns": heavy_ns,
            "heavy_share": run.share(heavy_ns),
            "calls": rows.height,
            "processors": facts.usable,
        }
        yield Evidence(
            heavy_ns // 2,
            figures,
            {"op": str(place_of(rows, "self_ns")["ops"][0])},
            confidence="likely" if others is None else "certain",
            sentence="" if others is None else _SAMPLED,
            **place_of(rows, "self_ns"),
        )
        return


def _oversubscribed(run: Run, threshold: float) -> Iterator[Evidence]:
    if run.has_devices:
        return
    times = {(rank, pid): ns for rank, pid, ns in run.times.group_by(PROCESS).agg(_col("time_ns").sum()).iter_rows()}
    hosts: dict[str | None, list[ProcessFacts]] = defaultdict(list)
    for facts in facts_of(run):
        if not (facts.threads and facts.usable):
            continue
        heavy_ns = int(_of_process(_heavy(run), facts)["self_ns"].sum())
        time_ns = times.get((facts.rank, facts.pid))
        if time_ns is not None and 0 < _WORKING * time_ns <= heavy_ns:
            hosts[facts.host].append(facts)
    cases = [(_ratio(some), some) for host, some in hosts.items() for some in _groups(run, host, some)]
    ratio, some = max(cases, key=lambda case: case[0], default=(0.0, []))
    if ratio < threshold:
        return
    figures = {
        "threads": sum(facts.threads or 0 for facts in some),
        "processes": len(some),
        "processors": _processors(some),
    }
    ranks = tuple(sorted({facts.rank for facts in some}))
    yield Evidence(
        None,  # how long the ops would take on fewer threads is unknown
        figures,
        confidence="certain",
        ranks=ranks,
        sentence=_OF_ONE if len(some) == 1 else "",
    )


def _groups(run: Run, host: str | None, some: Sequence[ProcessFacts]) -> Iterator[list[ProcessFacts]]:
    """Yields each process by itself, and the processes of a known host whose ops ran at the same time."""
    for facts in some:
        yield [facts]
    if host is None:
        return
    ops = run.ranges.filter(_col("kind") == "op")
    spans = sum_by(ops, PROCESS, begin=_col("start_ns").min(), end=_col("end_ns").max())
    times = {(rank, pid): (begin, end) for rank, pid, begin, end in spans.iter_rows()}
    for first in some:
        at = times.get((first.rank, first.pid), (None, None))[0]
        if at is None:
            continue
        beside = (times.get((facts.rank, facts.pid), (None, None)) for facts in some)
        yield [
            facts
            for facts, (begin, end) in zip(some, beside, strict=True)
            if begin is not None and end is not None and begin <= at < end
        ]


def _ratio(some: Sequence[ProcessFacts]) -> float:
    processors = _processors(some)
    return sum(facts.threads or 0 for facts in some) / processors if processors else 0.0


def _processors(some: Sequence[ProcessFacts]) -> float:
    """Returns how many processors the processes may use together, at most; 0 if that is unknown."""
    if len(some) == 1:
        return some[0].usable or 0
    if not all(facts.processors for facts in some):
        return 0
    return len(frozenset().union(*(facts.processors for facts in some)))


def _of_process(rows: pl.DataFrame, facts: ProcessFacts) -> pl.DataFrame:
    return rows.filter(_col("rank") == facts.rank, _col("pid") == facts.pid)


def _has_other_ranks(run: Run) -> bool:
    """Returns whether the run had ranks that are not in the trace: they may use the processors that seem free."""
    ranks = run.trace.ranks
    return any((rank.told.world_size or 1) > len(ranks) for rank in ranks)


def _processes_of(run: Run, host: str | None) -> int:
    """Returns how many processes with ranges ran on the host, or on a host that is unknown."""
    processes = distinct(run.trace.ranges.select(PROCESS), PROCESS)
    hosts = run.trace.processes.select(*PROCESS, "host").unique(PROCESS, keep="first")
    processes = processes.join(hosts, on=PROCESS, how="left", nulls_equal=True)
    name = processes["host"].cast(pl.String)
    return int((name.is_null() | (name == host)).sum()) if host is not None else processes.height


def _sampled_elsewhere(run: Run, rows: pl.DataFrame) -> float | None:
    """Returns the share of the process's samples, taken during the ops, of other threads than the ops' own. If there
    are too few samples to know, returns None."""
    samples = samples_of(run)
    if not samples.height:
        return None
    samples = samples[within(samples, "time_ns", rows.select(*PROCESS, "start_ns", "end_ns"), PROCESS)["row"]]
    if samples.height < FEW:
        return None
    own = samples.join(distinct(rows, THREAD), on=THREAD, how="semi", nulls_equal=True)
    return 1 - float(own["weight"].sum()) / float(samples["weight"].sum())


_ONE = (
    "torch used one thread for each op when the recording ended, and the process may use {processors} processors; "
    "{calls} calls of products, convolutions and attention took {heavy_ns} ({heavy_share}), most in {op}"
)
_SAMPLED = _ONE + ". No other thread of the process was sampled at work meanwhile"
_OF_ONE = (
    "torch used {threads} threads for each op when the recording ended, and the process may use only {processors} "
    "processors"
)

RULES = (
    Rule(
        id="one-thread",
        title="Large ops on one thread",
        looks_at="captures that state that torch used one thread for each op, and how many processors the process may "
        "use: calls of products, convolutions and attention of at least 0.2 ms on one thread of programs without "
        "devices. Nothing is said if ranks are missing in the trace, if there are not at least two processors for each "
        "process, or if samples show other threads at work",
        threshold=0.1,
        because="a tenth of the time, which is at stake if these ops took half of their time; people rewrite a program "
        "for that",
        sentence=_ONE,
        remedy="Look for OMP_NUM_THREADS=1 (torchrun sets it), MKL_NUM_THREADS or torch.set_num_threads(1), and try "
        "more threads, up to the processors that other processes leave: torch.set_num_threads(...)",
        command="opspan table FILE",
        read="https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html",
        look=_one_thread,
        condition="if they took half of their time on more threads",
    ),
    Rule(
        id="oversubscription",
        title="More threads than processors",
        looks_at="captures that state on how many threads torch runs an op and which processors the process may use: "
        "the threads of a process without devices, or of the processes of a host whose ops ran at the same time, for "
        "each processor that they may use. Only processes count that spent a tenth of their time in products, "
        "convolutions and attention of at least 0.2 ms",
        threshold=1.5,
        because="threads for each processor, not a share: an op waits for the last of its threads, and with fewer "
        "threads than that most find a processor at once",
        sentence="{processes} processes of one host ran ops at the same time, each on as many threads as torch used "
        "when their recordings ended, {threads} in all, and together they may use only {processors} processors",
        remedy="As many threads as there are processors, divided by the processes of the host: "
        "torch.set_num_threads(...) or OMP_NUM_THREADS",
        command="opspan functions FILE --by thread",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_oversubscribed,
    ),
)
