"""Rules about training loops: an optimizer that steps parameter by parameter, and a backward that takes far longer than
its forward."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.autograd import LINKED
from opspan.analysis.nest import nearest
from opspan.analysis.spans import DEVICE, PROCESS, number_groups, sum_by
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of, ranges_of
from opspan.findings.run import Run, ranks_of, top
from opspan.findings.saved import merge, reduce, saved_ns

_col = pl.col
_STEP = r"^Optimizer\.step#"
_TWICE = 2  # usual ratio of a backward to its forward: a backward computes the gradients of input and weight


def _loop(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.has_devices or not run.has_loop_in_optimizer:
        return  # torch's optimizers on the host always go parameter by parameter
    ranges = run.trace.ranges
    steps = run.ranges_named(_STEP)
    is_step = pl.Series([False]).new_from_index(0, ranges.height).scatter(steps["row"], True)
    kernels = run.all_kernels.filter(_col("call").is_not_null())
    kernels = kernels.with_columns(within=nearest(ranges, is_step).gather(kernels["range"])).drop_nulls("within")
    (kernels,) = number_groups((*DEVICE, "within"), kernels)
    at_stake = saved_ns(run, merge(run, kernels))
    if run.matters(at_stake, threshold):
        ns = run.per_process(run.idle.filter(_col("cause") == "optimizer"), "ns")
        figures = {"idle_ns": ns, "idle_share": run.share(ns), "steps": steps.height, "kernels": kernels.height}
        yield Evidence(at_stake, figures, **(place_of(kernels, "ns") | {"ranges": ranges_of(steps)}))


def _backward(run: Run, threshold: float) -> Iterator[Evidence]:
    ranges = run.trace.ranges
    is_linked = ranges["link"] == LINKED
    if not is_linked.any():
        return
    # `took`: computing on devices or on the host, with its range. Collectives are left out, because they compute no
    # gradients.
    if run.has_devices:
        took = run.computing.select(*PROCESS, "range", "ns", "work")
    else:
        took = rows_in_steps(run, run.ranges).select(*PROCESS, range="row", ns="self_ns")
    target = ranges["forward"].set(~is_linked.fill_null(value=False), None)
    is_target = pl.Series([False]).new_from_index(0, ranges.height).scatter(target.drop_nulls().unique(), True)
    backward_of = target.gather(nearest(ranges, target.is_not_null())).gather(took["range"])
    forward_of = nearest(ranges, is_target).gather(took["range"])
    name = ranges["name"]
    took = took.with_columns(backward=name.gather(backward_of), forward=name.gather(forward_of))
    sums = took.filter(_col("backward").is_null()).rename({"forward": "name"})
    sums = sum_by(sums, (*PROCESS, "name"), forward_ns=_col("ns").sum())
    backward = sum_by(took.rename({"backward": "name"}), (*PROCESS, "name"), backward_ns=_col("ns").sum())
    sums = sums.drop_nulls("name").join(backward, on=[*PROCESS, "name"], nulls_equal=True)
    more_ns = _col("backward_ns") - _TWICE * _col("forward_ns")
    sums = sums.with_columns(_col("name").cast(pl.String), more_ns=more_ns)
    least = _LEAST * run.total_ns
    sums = sums.filter(
        _col("backward_ns") > threshold * _col("forward_ns"), _col("forward_ns") >= least / 2, _col("more_ns") >= least
    )
    if not sums.height:
        return
    at_stake = run.longest(sums, "more_ns")
    if run.has_devices:
        more = sums.select(*PROCESS, backward="name", part=_col("more_ns") / _col("backward_ns"))
        rows = took.with_columns(_col("backward").cast(pl.String)).join(
            more, on=[*PROCESS, "backward"], nulls_equal=True
        )
        rows = rows.with_columns(more_ns=(_col("ns") * _col("part")).cast(pl.Int64))
        at_stake = saved_ns(run, reduce(run, rows, "more_ns"), _LEAST)
        if at_stake < least:
            return
    sums = sums.sort("more_ns", "name", descending=[True, False])
    first = sums.row(0, named=True)
    rows = run.ranges.filter(_col("name").cast(pl.String) == first["name"])
    yield Evidence(
        at_stake,
        {
            "forward_ns": first["forward_ns"],
            "backward_ns": first["backward_ns"],
            "times": round(first["backward_ns"] / first["forward_ns"], 1),
            "ops": sums["name"].n_unique(),
        },
        {"op": first["name"]},
        ops=top(sums, "more_ns", "name"),
        ranks=ranks_of(rows),
        ranges=ranges_of(rows.drop_nulls("end_ns")),
    )


# Share of the run's time: a backward must take at least this much more than twice its forward's time. The forward must
# take at least half of this share.
_LEAST = 0.02

RULES = (
    Rule(
        id="optimizer-loop",
        title="The optimizer steps one parameter after the other",
        looks_at="launches of optimizers of which no op takes many parameters at once; at stake is how much sooner the "
        "run would have ended if each step of the optimizer launched all its work with the first call",
        threshold=0.02,
        because="a fiftieth of the time: less is lost among the steps' own differences",
        sentence="devices were idle for {idle_ns} ({idle_share}) in the optimizer, which launched {kernels} kernels, a "
        "few for each parameter",
        remedy="torch.optim's fused=True, or foreach=True; for an optimizer of your own, torch._foreach_... or "
        "torch.compile",
        command="opspan idle FILE --by phase",
        read="https://docs.pytorch.org/docs/stable/optim.html",
        look=_loop,
    ),
    Rule(
        id="heavy-backward",
        title="A backward that takes far longer than its forward",
        looks_at="ops whose backward takes more than five times their forward's time; at stake is how much "
        "sooner the run would have ended if it took twice",
        threshold=5,
        because="twice is what two gradients cost, four times where few rows make the gradient of a large weight; "
        "at five times something else happens: atomics, recomputing, copies",
        sentence="the backward of {op} takes {times} times its forward ({backward_ns} for {forward_ns})",
        remedy="Look at the kernels below it: gathers and embeddings that add in place, inputs that had to be made "
        "contiguous, checkpoints that compute the forward again",
        command="opspan table FILE",
        read="docs/analysis.md#autograd",
        look=_backward,
        condition="if it took twice its forward's time",
    ),
)
