"""A rule about copies between host and device that do not overlap with computing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opspan.analysis.spans import PROCESS, only
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run
from opspan.findings.saved import leave_out, rows_that_gain, saved_ns

_col = pl.col
_KNOWN = ("pageable", "pinned")  # the kinds of host memory that a finding names
_ALIKE = (*PROCESS, "op", "bytes", "copy_from", "copy_to")
_HOST = (*_KNOWN, "host", "unknown host")


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    sides = [_col(name).is_in(pl.Series(_HOST, dtype=pl.Categorical).implode()) for name in ("copy_from", "copy_to")]
    is_one = (_col("kind") == "memcpy") & (sides[0] != sides[1]).fill_null(value=False)
    rows = only(run.kernels, is_one)
    most_devices = int(run.devices_used["devices"].max() or 0)  # type: ignore[arg-type]  # a number
    # Devices may copy one after another, so the sum over the devices of a process counts, not their mean.
    if not run.matters(run.per_process(rows, "ns") * most_devices, threshold):
        return  # in most runs, copies take too little time to report
    # A program without these copies would also lack equal copies in outliers and in a validation between steps.
    alike = only(run.busy, is_one).join(rows, on=_ALIKE, how="semi", nulls_equal=True)
    change = leave_out(run, work=alike["work"])
    at_stake = saved_ns(run, change)
    if not run.matters(at_stake, threshold):
        return
    rows, busy = (rows_that_gain(run, some, change, threshold * run.total_ns) for some in (rows, run.kernels))
    rows = rows.with_columns(host=pl.when(sides[0]).then("copy_from").otherwise("copy_to"))
    kinds = {kind: int(rows.filter(_col("host") == kind)["ns"].sum()) for kind in _KNOWN}
    ns, to_device_ns = (float(some["ns"].cast(pl.Float64).sum()) for some in (rows, rows.filter(sides[0])))
    yield Evidence(
        at_stake,
        {
            "exposed_ns": at_stake,
            "exposed_share": run.share(at_stake),
            "copies": rows.height,
            "bytes": int(rows["bytes"].sum()),
            "ns": run.per_process(rows, "ns"),
            "busy_share": ns / float(busy["ns"].cast(pl.Float64).sum()),
            **{f"{kind}_ns": kind_ns for kind, kind_ns in kinds.items() if kind_ns},
        },
        {"memory": _memory(kinds, ns), "direction": "to the device" if 2 * to_device_ns >= ns else "to the host"},
        **place_of(rows, "ns"),
    )


def _memory(kinds: dict[str, int], ns: float) -> str:
    for kind, kind_ns in kinds.items():
        if 2 * kind_ns > ns:
            return f"in {'all' if kind_ns == ns else 'most'} of them it is {kind}"
    return "both pageable and pinned" if all(kinds.values()) else "the file does not say of what kind it is"


RULES = (
    Rule(
        id="exposed-copies",
        title="Copies that no computing hides",
        looks_at="copies between host and device; at stake is how much sooner the run would have been done, had they "
        "taken no time",
        threshold=0.05,
        because="a twentieth of the time: the batches of most programs take less",
        sentence="{copies} copies ({bytes}), most of them {direction}, ran for {ns} ({busy_share} of what devices "
        "did); without them the run would be up to {exposed_ns} ({exposed_share}) shorter; memory of the host: "
        "{memory}",
        remedy="Keep on the device what is copied again and again; copy what comes next while this is computed, from "
        "pinned memory with non_blocking=True, on a stream of its own",
        command="opspan table FILE --by kernel",
        read="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        look=_look,
    ),
)
