"""Devices that had nothing to do, by what kept them: not data, not a wait, which have rules of their own."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import PROCESS, looked_up
from opspan.findings.host_place import mostly_in
from opspan.findings.rule import Evidence, Rule, ranges_of
from opspan.findings.run import Run, ranks_of, top

_col = pl.col


# A gap of so many usual times between two launches is no longer the pace of launching: the host did something else.
_PACES = 10


def _pieces(run: Run, is_bound: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The idle time until launches and in them: of processes that launch more slowly than their devices work, in gaps
    as long as launching takes; or all other. And the paces of these processes."""
    rows = run.idle.filter(_col("cause").is_in(["host", "launch"]))
    paces = run.paces.with_columns(is_bound=_col("apart_ns") > _col("work_ns"))
    rows = looked_up(rows, paces.select(*PROCESS, "is_bound", "apart_ns"), PROCESS)
    is_pace = _col("end_ns") - _col("start_ns") <= _PACES * _col("apart_ns")
    chosen = (_col("is_bound") & is_pace).fill_null(value=False)
    rows = rows.filter(chosen if is_bound else ~chosen)
    return rows, paces.join(rows, on=PROCESS, how="semi", nulls_equal=True)


def _bound(run: Run, threshold: float) -> Iterator[Evidence]:
    rows, paces = _pieces(run, is_bound=True)
    at_stake = run.per_process(rows, "ns")
    if not run.matters(at_stake, threshold):
        return
    figures = {
        "idle_ns": at_stake,
        "idle_share": run.share(at_stake),
        "apart_ns": int(paces["apart_ns"].median() or 0),  # type: ignore[arg-type]  # a number
        "work_ns": int(paces["work_ns"].median() or 0),  # type: ignore[arg-type]
        "short_share": int(paces["short"].sum()) / int(paces["launches"].sum()),
    }
    yield _evidence(rows, at_stake, figures)


def _late(run: Run, threshold: float) -> Iterator[Evidence]:
    rows, _ = _pieces(run, is_bound=False)
    at_stake = run.per_process(rows, "ns")
    if run.matters(at_stake, threshold):
        figures = {"idle_ns": at_stake, "idle_share": run.share(at_stake)}
        yield _evidence(rows, at_stake, figures, {"where": mostly_in(run, rows)})


def _queued(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.idle.filter(_col("cause") == "queued")
    at_stake = run.per_process(rows, "ns")
    if run.matters(at_stake, threshold):
        yield _evidence(rows, at_stake, {"idle_ns": at_stake, "idle_share": run.share(at_stake)})


def _evidence(
    rows: pl.DataFrame, at_stake: int, figures: dict[str, float], words: dict[str, str] | None = None
) -> Evidence:
    pieces = rows.select(*PROCESS, "start_ns", "end_ns", "gap")
    return Evidence(
        at_stake,
        figures,
        words or {},
        ops=top(rows, "ns", "op"),
        modules=top(rows, "ns", "module"),
        steps=top(rows, "ns", "step"),
        ranks=ranks_of(rows),
        ranges=ranges_of(pieces, once="gap"),
    )


_IDLE = "a tenth of the time: what is idle below that is what every eager program has between its steps"
_READ = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

RULES = (
    Rule(
        id="launch-bound",
        title="The host launches more slowly than the device works",
        looks_at="idle time of devices until and in launches, in gaps of up to ten times the median time between two "
        "launches, of processes of which that is longer than the median work",
        threshold=0.1,
        because=_IDLE,
        sentence="devices were idle for {idle_ns} ({idle_share}): a launch came every {apart_ns}, and what it launched "
        "took {work_ns}",
        remedy='Launch less: torch.compile(mode="reduce-overhead"), CUDA graphs, larger batches, fused ops and '
        "optimizers",
        command="opspan idle FILE --by op",
        read="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        look=_bound,
    ),
    Rule(
        id="late-host",
        title="The host launches late",
        looks_at="idle time of devices until and in launches that is not of the rule launch-bound: gaps that are "
        "longer, or of processes that launch quickly enough",
        threshold=0.1,
        because=_IDLE,
        sentence="devices were idle for {idle_ns} ({idle_share}) until the host launched what came next; it was mostly "
        "in {where}",
        remedy="See what the host does there: Python between ops, logging, checkpoints, work of other threads that "
        "hold the interpreter",
        command="opspan idle FILE --by op",
        read=_READ,
        look=_late,
    ),
    Rule(
        id="queued",
        title="Launched, but not begun",
        looks_at="idle time of devices before work that had been launched already",
        threshold=0.1,
        because=_IDLE,
        sentence="devices were idle for {idle_ns} ({idle_share}) though work had been launched: it waited for another "
        "stream, another rank, or the device itself",
        remedy="Look for events and waits between streams, for ranks that arrive late, and for copies that are in the "
        "way",
        command="opspan idle FILE --by gap",
        read=_READ,
        look=_queued,
    ),
)
