"""Events as columns and as torch's objects. torch works out trees and times; the columns are told what came of it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import polars as pl
from torch.autograd import DeviceType as TorchDeviceType
from torch.autograd import profiler_util as theirs

from opspan.events import Microseconds
from opspan.events.columns import CPU, DEVICE, EventColumns

# A range's name and kind, and torch.profiler's fields for it: name, scope, whether it is the user's.
RANGES = [
    ("aten::mm", "op", "aten::mm", 0, False),
    ("MmBackward0", "backward", "MmBackward0", 1, False),
    ("my range", "user", "my range", 7, True),
    ("aten::mm", "user", "aten::mm", 7, True),
    ("ProfilerStep#3", "step", "ProfilerStep*", 7, True),
    ("ProfilerStep#12", "step", "ProfilerStep*", 7, True),
    ("y" * 60, "engine", "y" * 60, 0, False),
    (None, "unknown", "(no name)", 0, False),
]
SIZES: list[tuple[str | None, list[Any]]] = [
    (None, []),
    ("[]", []),
    ("[[2, 4], [], [3]]", [[2, 4], [], [3]]),
    ("[[[1], [2, 2]], [7]]", [[], [7]]),
    ("from nowhere", []),
]
KERNELS = ["void gemm<float>(int)", "Memcpy HtoD (Pageable -> Device)", None]
TIMES = st.one_of(st.integers(0, 9), st.integers(0, 3_000_000))

RANGE_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "what": st.sampled_from(RANGES),
            "sizes": st.sampled_from(SIZES),
            "rank": st.integers(0, 1),
            "tid": st.integers(0, 1),
            "start": TIMES,
            "took": TIMES,
            "is_async": st.sampled_from([False, False, False, True]),
            "is_event": st.sampled_from([True, True, True, False]),
            "seq": st.sampled_from([None, 0, 5]),
            "forward_tid": st.sampled_from([None, 1]),
            "op_id": st.sampled_from([None, 8]),
            "overload": st.sampled_from([None, None, "Tensor", ""]),
        }
    ),
    max_size=14,
)
WORK_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(KERNELS),
            "rank": st.integers(0, 1),
            "device_id": st.sampled_from([0, 1, None]),
            "stream_id": st.sampled_from([7, None]),
            "start": TIMES,
            "took": TIMES,
            "of": st.integers(0, 99),
        }
    ),
    max_size=6,
)


@st.composite
def both(draw: st.DrawFn) -> tuple[EventColumns, Any]:
    """Columns, and torch's list of the same."""
    ranges, work = draw(RANGE_ROWS), draw(WORK_ROWS)
    whole = draw(st.booleans())  # whole microseconds: floats that are exact by themselves
    use_device = draw(st.sampled_from(["cuda", "xpu"])) if work else None
    several_ranks = draw(st.booleans())
    for row in [*ranges, *work]:
        row["rank"] = row["rank"] if several_ranks else 0
        row["start_ns"] = row["start"] * (1000 if whole else 1)
        row["end_ns"] = row["start_ns"] + row["took"] * (1000 if whole else 1)
    several_ranks = any(row["rank"] for row in [*ranges, *work])

    def times(row: dict[str, Any]) -> dict[str, float]:
        make = (lambda ns: ns / 1000) if whole else Microseconds
        return {"start_us": make(row["start_ns"]), "end_us": make(row["end_ns"])}

    def common(row: dict[str, Any]) -> dict[str, Any]:
        node = row["rank"] if several_ranks else -1
        return {
            "node_id": node,
            "use_device": use_device,
            "overload_name": row.get("overload") or "",
            "stack": [],
            "flops": 0,
            **times(row),
        }

    cpu = []
    for number, row in enumerate(ranges):
        name, _, shown, scope, user = row["what"]
        cpu.append(
            theirs.FunctionEvent(
                id=number + 1,
                name=shown,
                trace_name=name or shown,
                thread=row["tid"] + 10 * row["rank"],
                fwd_thread=row["forward_tid"],
                input_shapes=row["sizes"][1],
                scope=scope,
                is_async=row["is_async"],
                sequence_nr=-1 if row["seq"] is None else row["seq"],
                external_id=row["op_id"] or 0,
                is_user_annotation=user,
                **common(row),
            )
        )
    listed = [number for number, row in enumerate(ranges) if row["is_event"]]
    launching = [number for number in listed if not ranges[number]["is_async"]]
    device = []
    for number, row in enumerate(work, len(ranges)):
        name = row["name"] or "(no name)"
        device.append(
            theirs.FunctionEvent(
                id=number + 1,
                name=name,
                trace_name=name,
                thread=row["stream_id"] or 0,
                device_type=TorchDeviceType.CUDA if use_device == "cuda" else TorchDeviceType.XPU,
                device_index=row["device_id"] or 0,
                input_shapes=[],
                **common(row),
            )
        )
        row["range"] = launching[row["of"] % len(launching)] if launching and row["of"] < 80 else None
    for number in sorted(range(len(work)), key=lambda number: (work[number]["start_ns"], -work[number]["end_ns"])):
        row, event = work[number], device[number]
        if row["range"] is not None:
            cpu[row["range"]].append_kernel(event.name, event.device_index, event.time_range.elapsed_us())
        event.linked_correlation_id = 0 if row["range"] is None else row["range"] + 1

    expected = theirs.EventList([*(cpu[number] for number in listed), *device], use_device=use_device)
    expected.sort(key=lambda event: [event.time_range.start, -event.time_range.end])
    expected._populate_cpu_children()
    expected._tree_built = True

    def ns(time: float) -> int:
        return time.ns if isinstance(time, Microseconds) else round(time * 1000)

    cpu_rows = [
        {
            **row,
            "tid": event.thread,
            "name": row["what"][0],
            "kind": row["what"][1],
            "sizes": row["sizes"][0],
            "parent": None if event.cpu_parent is None else event.cpu_parent.id - 1,
            "self_ns": ns(event.self_cpu_time_total),
            "self_device_ns": ns(event.self_device_time_total),
            "device_ns": ns(event.device_time_total),
            "function": None,
        }
        for row, event in zip(ranges, cpu, strict=True)
    ]
    device_rows = [{**row, "kind": "kernel"} for row in work]
    columns = EventColumns(
        pl.DataFrame([{name: row.get(name) for name in CPU} for row in cpu_rows], schema=CPU),
        pl.DataFrame([{name: row[name] for name in DEVICE} for row in device_rows], schema=DEVICE),
        use_device,
        *([] if use_device is None else [device_type(use_device)]),
    )
    return columns, expected


def device_type(use_device: str) -> Any:
    from opspan.events import DeviceType

    return {"cuda": DeviceType.CUDA, "xpu": DeviceType.XPU}[use_device]
