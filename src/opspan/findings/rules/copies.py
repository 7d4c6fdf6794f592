"""Rules about needless copies: to the host and back, or to the host because a device lacks a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import DEVICE, PROCESS, number_groups, only, time_in
from opspan.findings.marks import is_fallback
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run
from opspan.findings.saved import leave_out, saved_ns, work_launched_in

_col = pl.col
_HOST = ["pageable", "pinned", "host", "unknown host"]
# A size counts only if at least this share of its copies to the device seem to return data that was copied to the host
# before.
_MOSTLY = 0.5
_LEAST = 4096  # bytes; smaller copies are single values and shapes, which often have the same size by chance


def _there_and_back(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = run.all_kernels.filter(_col("kind") == "memcpy", _col("bytes") >= _LEAST)
    is_fallback = run.is_falling_back.gather(rows["range"]).fill_null(value=False)
    rows = rows.filter(~is_fallback).with_columns(_col("copy_from", "copy_to").cast(pl.String))
    down = rows.filter(_col("copy_from") == "device", _col("copy_to").is_in(_HOST)).sort("end_ns")
    up = rows.filter(_col("copy_to") == "device", _col("copy_from").is_in(_HOST)).sort("start_ns")
    # join_asof does not match nulls. With the numbers of `number_groups`, copies without a step match each other, too.
    up, down = number_groups((*DEVICE, "bytes", "step"), up, down)
    back = up.join_asof(
        down.select("of", "end_ns", down_ns="start_ns", down="work"),
        left_on="start_ns",
        right_on="end_ns",
        by="of",
        strategy="backward",
        check_sortedness=False,
        suffix="_down",
    )
    # A copy to the host is matched only with the next copy to the device.
    is_back = _col("down_ns").is_not_null() & _col("down_ns").is_first_distinct().over("of")
    back = back.with_columns(is_back=is_back)
    # Leave out sizes for which most copies to the device carry new data. For these sizes, inputs and results are
    # equally large by chance.
    trips = back.filter("is_back", _col("is_back").mean().over("of") >= _MOSTLY).with_columns(start_ns="down_ns")
    if not trips.height:
        return
    computing = only(run.all_kernels, _col("what") == "computing")
    trip_ns = trips["end_ns"] - trips["start_ns"]
    trips = trips.with_columns(lost_ns=(trip_ns - time_in(computing, trips, DEVICE)).clip(0))
    lost_ns = min(run.per_process(trips, "lost_ns"), run.total_ns)
    if not run.matters(lost_ns, threshold):
        return
    copies = pl.concat([trips["down"], trips["work"]])
    has_calls = run.analysis.attributed.work["call"].gather(copies).is_not_null().all()
    # If the calls of copies are not in the file, the host's work between the copies is unknown.
    at_stake = saved_ns(run, leave_out(run, work=copies)) if has_calls else lost_ns
    if not run.matters(at_stake, threshold):
        return
    yield Evidence(
        at_stake,
        {"trips": trips.height, "bytes": int(trips["bytes"].sum()), "lost_ns": lost_ns},
        confidence="possible",  # the sizes are equal, but the tensors may differ
        **place_of(trips, "lost_ns"),
    )


def _fallbacks(run: Run, threshold: float) -> Iterator[Evidence]:
    ranges = run.trace.ranges
    ops = ranges.select(*PROCESS, "tid", "name", "start_ns", "end_ns", "module").filter(is_fallback(ranges))
    ops = rows_in_steps(run, ops).with_columns(ns=_col("end_ns") - _col("start_ns")).filter(_col("ns") > 0)
    change = leave_out(run, stretches=ops, work=work_launched_in(run, ops))
    at_stake = saved_ns(run, change, threshold)
    if run.matters(at_stake, threshold):
        ns, places = run.longest(ops, "ns"), place_of(ops.rename({"name": "op"}), "ns")
        figures = {"ns": ns, "ns_share": run.share(ns), "calls": ops.height}
        words = {"op": next(iter(places["ops"]), "one without a name")}
        yield Evidence(at_stake, figures, words, "certain", **places)


RULES = (
    Rule(
        id="there-and-back",
        title="Data that is copied to the host and back",
        looks_at="copies from a device to the host, and the next of the same size to the device, in one step, where "
        "these are at least half of the copies of that size to the device; at stake is the time from one to the other "
        "in which the device did not compute",
        threshold=0.02,
        because="a fiftieth of the time: less is lost among the steps' own differences",
        sentence="{trips} times {bytes} in all went to the host and back, and the device did not compute for {lost_ns}",
        remedy="Do on the device what the host does in between; no .cpu(), .numpy() or .tolist() in the loop",
        command="opspan table FILE --by kernel",
        read="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        look=_there_and_back,
    ),
    Rule(
        id="cpu-fallback",
        title="Ops that the device has no kernel for",
        looks_at="ops that moved their inputs to the host (aten::_to_cpu) and ran there; at stake is how much sooner "
        "the run would have ended without them, their copies and their waits",
        threshold=0.01,
        because="a hundredth: each of them waits for the device and copies twice",
        sentence="{calls} ops ran on the host for lack of kernels of the device: {ns} ({ns_share}), most in {op}",
        remedy="Another op that the device has, a newer release of torch, or the op moved out of the loop",
        command="opspan table FILE",
        read="https://docs.pytorch.org/docs/stable/notes/mps.html",
        look=_fallbacks,
    ),
)
