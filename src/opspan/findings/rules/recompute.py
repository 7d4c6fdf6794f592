"""A rule about forward ops that run again in the backward. Checkpointing runs them again to save memory.

Torch gives a sequence number (`seq`) to each op that will have a backward. Without checkpointing, no op inside a
backward has such a number. With checkpoint(use_reentrant=True), a forward op that runs again and its backward are
inside the same node, CheckpointFunctionBackward. With use_reentrant=False the first node that needs a dropped tensor
runs the forward again, including the node's own forward op. After that, the node computes its gradient with ops that
have no seq. (If gradients are to be differentiated again, the ops that compute them have a seq, too.)
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.nest import nearest
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import leave_out, saved_ns
from opspan.row_numbers import ROW_NUMBER

_col = pl.col
_TIMES = ("rank", "pid", "tid", "start_ns", "end_ns")


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    root, stretches = _again(run)
    if not stretches.height:
        return
    if run.has_devices:
        rows = run.computing.with_columns(root=root.gather(run.computing["range"])).drop_nulls("root")
        ns, work = run.per_process(rows, "ns"), rows["work"]
    else:
        rows = rows_in_steps(run, run.ranges)
        rows = rows.with_columns(root=root.gather(rows["row"]), ns="self_ns", op="name", range="row")
        rows = rows.filter(_col("root").is_not_null(), _col("ns") > 0)
        ns, work = run.longest(rows, "ns"), None
    at_stake = saved_ns(run, leave_out(run, stretches=stretches, work=work), threshold)
    if not run.matters(at_stake, threshold):
        return
    names = run.trace.ranges["name"].gather(rows["root"])
    # Ops that only the checkpoint adds, such as aten::detach, have no seq and do not count.
    ranges = run.trace.ranges.select("name", "seq")[rows["root"].unique()].drop_nulls("seq")
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "ops": ranges.height},
        {"op": next(iter(top(rows.with_columns(root=names), "ns", "root")), "ops without a name")},
        confidence="certain",
        **place_of(rows, "ns"),
    )


def _again(run: Run) -> tuple[pl.Series, pl.DataFrame]:
    """Returns for each range the op that runs again: the range itself, or the outermost such op around the range. Also
    returns the times in which nodes of the backward ran ops again (rank, pid, tid, start_ns, end_ns). Each time begins
    with its node, and ends when the node begins to compute gradients."""
    ranges = run.trace.ranges
    nothing = pl.Series([None], dtype=ROW_NUMBER).new_from_index(0, ranges.height), ranges.clear().select(_TIMES)
    is_backward = (ranges["kind"] == "backward").fill_null(value=False)
    if not is_backward.any():
        return nothing
    # In most runs no op in a backward has a seq, so the function returns early below.
    node = nearest(ranges, is_backward | (ranges["kind"] == "engine").fill_null(value=False))
    has_seq = ranges["seq"].is_not_null() & (ranges["kind"] == "op").fill_null(value=False)
    has_seq &= (ranges["seq"] != 0) | ranges["op_id"].is_not_null()  # old torch wrote 0 for ops without a backward
    # `is_own`: ops that a node calls directly, that is, not inside another op. Modules and functions may be between.
    is_op = (ranges["kind"] == "op").fill_null(value=False)
    is_own = is_op & node.is_not_null() & ~is_op.gather(ranges["parent"]).fill_null(value=False)
    will_have = ranges.select("start_ns", "end_ns", "name", "sizes", node=node, is_own=is_own).with_row_index("row")
    own = will_have.with_columns(has_seq=has_seq).filter("is_own")
    will_have = will_have.filter(has_seq & node.is_not_null())
    if not will_have.height:
        return nothing
    nodes = pl.concat([_reentrant(ranges, node), _unpacking(ranges, is_backward, will_have, own)])
    # Find, among the ops that a node calls directly, the last one with a seq. All later ops compute gradients.
    until = own.filter("has_seq").group_by("node").agg(until_ns=_col("start_ns").max())
    own = own.join(nodes.unique("node").join(until, on="node"), on="node")
    is_again = _col("start_ns") <= _col("until_ns")
    rows = own.filter(is_again)
    if not rows.height:
        return nothing
    done = own.group_by("node", maintain_order=True).agg(
        last_ns=_col("end_ns").filter(is_again).max(), next_ns=_col("start_ns").filter(~is_again).min()
    )
    stretches = ranges.select(_TIMES)[done["node"]]
    stretches = stretches.with_columns(end_ns=done.select(pl.coalesce("next_ns", "last_ns")).to_series())
    again = pl.Series([False]).new_from_index(0, ranges.height).scatter(rows["row"], True)
    return nearest(ranges, again), stretches


def _reentrant(ranges: pl.DataFrame, node: pl.Series) -> pl.DataFrame:
    """Returns the nodes that run an op and then also the backward of that op."""
    inner = ranges.select("forward", "parent").with_columns(of=node.gather(ranges["forward"])).drop_nulls("of")
    # With use_reentrant=True, the backward of the op is in a range of the engine, inside the outer node.
    nearer = node.gather(inner["parent"])
    further = node.gather(ranges["parent"].gather(nearer))
    is_inside = (nearer == inner["of"]).fill_null(value=False) | (further == inner["of"]).fill_null(value=False)
    return inner.filter(is_inside).select(node="of").unique()


def _unpacking(
    ranges: pl.DataFrame, is_backward: pl.Series, will_have: pl.DataFrame, own: pl.DataFrame
) -> pl.DataFrame:
    """Returns the nodes that run their own forward op again, with the same sizes, and then compute gradients with ops
    that have no seq. `own`: the ops that nodes call directly."""
    forward = ranges["forward"].gather(will_have["node"])
    same = ranges.select("name", "sizes")[forward.fill_null(0)]
    is_same = forward.is_not_null()
    for name in ("name", "sizes"):
        is_same &= same[name].cast(pl.String).eq_missing(will_have[name].cast(pl.String))
    nodes = will_have.filter(is_same & is_backward.gather(will_have["node"])).select("node").unique()
    last = own.join(nodes, on="node").sort("start_ns").group_by("node").agg(_col("has_seq").last())
    return last.filter(~_col("has_seq")).select("node")


RULES = (
    Rule(
        id="recompute",
        title="Checkpointing: forward ops that run again in the backward",
        looks_at="ops that the backward runs again before it computes gradients; at stake is how much sooner the run "
        "would have ended without them and what the host does for them, from where a node of the backward begins until "
        "it computes gradients",
        threshold=0.05,
        because="a twentieth of the time: checkpoints of a few cheap ops are worth the memory that they save",
        sentence="checkpoints ran {ops} forward ops again in the backward, which took {ns} ({ns_share}), most in {op}",
        remedy="Where memory is left, checkpoint fewer layers, or keep the results of products and attention alone "
        "(torch.utils.checkpoint.create_selective_checkpoint_contexts)",
        command="opspan table FILE --by phase",
        read="https://docs.pytorch.org/docs/stable/checkpoint.html",
        look=_look,
    ),
)
