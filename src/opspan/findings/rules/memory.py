"""Rules about memory that grows from step to step, and about free memory in pieces that are too small to use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from opspan.analysis.nest import innermost
from opspan.analysis.spans import DEVICE, PROCESS, within
from opspan.findings.rule import Evidence, Rule
from opspan.findings.run import Run, ranks_of, top

_col = pl.col
_WARM_UP = 2  # number of steps at the start that do not count, because optimizers create their state and caches fill
_LEAST_STEPS = 5  # least number of steps after the warm-up
_EVEN = 0.5  # share of the median growth: each step must grow by at least this, because a leak is the same in all steps
_LARGE = 1 << 20  # bytes; torch's allocator takes smaller blocks from separate segments


def _grows(run: Run, threshold: float) -> Iterator[Evidence]:
    curve = run.analysis.memory_curve if run.steps.height else pl.DataFrame()
    if not curve.height:
        return
    steps = run.steps.sort(*PROCESS, "start_ns").with_columns(place=pl.int_range(pl.len()).over(PROCESS))
    pairs = within(curve, "time_ns", steps, PROCESS)
    rows = curve.select(*DEVICE, bytes="allocated_bytes")[pairs["row"]]
    rows = rows.hstack(steps.select("place", "step", began_ns="start_ns")[pairs["stretch"]])
    # At the time of a step's least memory, nothing is allocated for this step alone. So the least amounts are compared.
    least = rows.group_by(*DEVICE, "place").agg(_col("bytes").min(), _col("step", "began_ns").first())
    most = rows.group_by(DEVICE).agg(most_bytes=_col("bytes").max())
    least = least.filter(_col("place") >= _WARM_UP).sort(*DEVICE, "place")
    more = _col("bytes").diff()
    sums = least.group_by(DEVICE, maintain_order=True).agg(
        pl.len().alias("steps"),
        _col("began_ns").first(),
        first_bytes=_col("bytes").first(),
        last_bytes=_col("bytes").last(),
        each_bytes=more.median(),
        least_bytes=more.min(),
        last_ns=_col("began_ns").last(),
    )
    sums = sums.join(most, on=DEVICE, nulls_equal=True).filter(
        _col("steps") >= _LEAST_STEPS,
        _col("each_bytes") >= threshold * _col("most_bytes"),
        _col("least_bytes") >= _EVEN * _col("each_bytes"),
        _col("each_bytes") > 0,
    )
    for row in sums.sort("each_bytes", descending=True).head(1).iter_rows(named=True):
        blocks = _leaked_blocks(run, row)
        names = ("each_bytes", "first_bytes", "last_bytes", "steps")
        figures: dict[str, int | float] = {name: int(row[name]) for name in names}
        sizes = run.trace.devices.filter(_same(row, ("rank", "device_id")))["memory_bytes"].drop_nulls()
        if len(sizes):
            figures["steps_left"] = max(int(sizes[0]) - int(row["last_bytes"]), 0) // int(row["each_bytes"])
        ops = top(blocks, "bytes", "op")
        device = "the host" if row["device_id"] is None else f"device {row['device_id']}"
        yield Evidence(
            None,
            figures,
            {"where": device, "op": next(iter(ops), "no range")},
            ops=ops,
            modules=top(blocks, "bytes", "module"),
            ranks=ranks_of(sums),
        )


def _leaked_blocks(run: Run, row: Mapping[str, Any]) -> pl.DataFrame:
    """Returns the blocks that were taken while memory grew and are never freed, with their op and module."""
    blocks = run.analysis.allocations.filter(
        _same(row, DEVICE),
        _col("alloc_ns").is_between(row["began_ns"], row["last_ns"]),
        _col("free_row").is_null() & _col("replaced_row").is_null(),
    )
    taken_in = innermost(run.trace.ranges, blocks.rename({"alloc_ns": "time_ns"}))
    return run.add_names(blocks.with_columns(range=taken_in))


def _same(row: Mapping[str, Any], names: Sequence[str]) -> pl.Expr:
    return pl.all_horizontal(_col(name).eq_missing(pl.lit(row[name])) for name in names)


def _fragments(run: Run, threshold: float) -> Iterator[Evidence]:
    if not run.trace.memory.height:
        return
    rows = run.analysis.memory_curve.drop_nulls(("total_bytes", "reserved_bytes"))
    if not rows.height:
        return
    before = {name: _col(name).shift(1).over(DEVICE) for name in ("total_bytes", "reserved_bytes")}
    rows = rows.sort(*DEVICE, "time_ns", maintain_order=True).with_columns(
        block_bytes=_col("total_bytes") - before["total_bytes"],
        more_bytes=_col("reserved_bytes") - before["reserved_bytes"],
        free_bytes=before["reserved_bytes"] - before["total_bytes"],
    )
    rows = rows.with_columns(most_bytes=_col("reserved_bytes").max().over(DEVICE))
    # Keep only the times at which the allocator took more memory although enough of its memory was free.
    rows = rows.filter(_col("more_bytes") > 0, _col("block_bytes") > _LARGE, _col("free_bytes") >= _col("block_bytes"))
    sums = rows.group_by(DEVICE).agg(
        _col("more_bytes").sum(), _col("most_bytes").first(), _col("free_bytes").max(), times=pl.len()
    )
    sums = sums.filter(_col("more_bytes") >= threshold * _col("most_bytes")).sort("more_bytes", descending=True)
    if not sums.height:
        return
    first = sums.row(0, named=True)
    events = run.trace.memory.select("tid", "time_ns")[rows["row"]]
    taken_in = innermost(run.trace.ranges, rows.select(*PROCESS, "more_bytes").hstack(events))
    named = run.add_names(rows.select("more_bytes").with_columns(range=taken_in))
    yield Evidence(
        None,
        {
            "more_bytes": first["more_bytes"],
            "more_share": first["more_bytes"] / first["most_bytes"],
            "reserved_bytes": first["most_bytes"],
            "free_bytes": first["free_bytes"],
            "times": first["times"],
        },
        {"device": str(first["device_id"])},
        confidence="likely",  # a block may also be unusable because it belongs to another stream
        ops=top(named, "more_bytes", "op"),
        modules=top(named, "more_bytes", "module"),
        ranks=ranks_of(sums),
    )


_READ = "https://docs.pytorch.org/docs/stable/torch_cuda_memory.html"

RULES = (
    Rule(
        id="growing-memory",
        title="Memory that grows from step to step",
        looks_at="the least memory that was in use in each step, from the third step on: whether each of at least five "
        "steps has more than the one before, and no step much less than the others",
        threshold=0.001,
        because="a thousandth, in each step, of the most that was in use: a thousand steps need as much again",
        sentence="memory of {where} grew in each of {steps} steps by {each_bytes}, from {first_bytes} to {last_bytes}; "
        "most of what was not given back was taken in {op}",
        remedy="Keep no tensors from step to step that hold a graph: append loss.item() or loss.detach() to lists, and "
        "do not add up losses that need gradients; look for caches that are never emptied",
        command="opspan memory FILE --by block",
        read=_READ,
        look=_grows,
    ),
    Rule(
        id="fragmentation",
        title="Memory in pieces that do not fit",
        looks_at="what torch's allocator took from the device for blocks of more than a megabyte although it held more "
        "free memory than the block needs, as a share of all that it reserved",
        threshold=0.1,
        because="a tenth of what is reserved: rounding of sizes wastes less",
        sentence="{times} times the allocator took more from device {device}, {more_bytes} in all ({more_share} of the "
        "{reserved_bytes} that it reserved), although up to {free_bytes} were free in pieces that did not fit",
        remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; keep sizes the same from step to step, and begin "
        "with the largest",
        command="opspan memory FILE --by block",
        read=_READ,
        look=_fragments,
    ),
)
