"""The same events as ours and as torch's, and everything that both can say of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import reject
from torch.autograd import DeviceType as TorchDeviceType
from torch.autograd import profiler_util as theirs

from opspan import events as ours

SORT_KEYS = [
    "cpu_time",
    "cuda_time",
    "xpu_time",
    "cpu_time_total",
    "cuda_time_total",
    "xpu_time_total",
    "device_time_total",
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_privateuse1_time_total",
    "cpu_memory_usage",
    "cuda_memory_usage",
    "self_cpu_memory_usage",
    "self_cuda_memory_usage",
    "count",
]

# Ends that fall together, ranges that touch, nest, overlap or are empty: few values make many of each.
TIMES = st.one_of(st.integers(0, 12), st.integers(0, 40_000_000).map(lambda ns: ns / 1000))
NAMES = ["aten::mm", "aten::add", "ProfilerStep*", "a name of {} 20 and more", "x" * 70, "Ünï cødé", "", "%s"]
STACKS = [[], ["file.py(3): f", "a/very/long/path/" * 6 + "mod.py(12): g", "x"], ["abc"]]
SHAPES = [[], [[2, 4], [3], []], [[1] * 40], None, ""]


@st.composite
def specs(draw: st.DrawFn, device: str | None) -> dict[str, Any]:
    """One event: constructor arguments, and `kernels`."""
    start = draw(TIMES)
    spec: dict[str, Any] = {
        "id": draw(st.integers(0, 99)),
        "name": draw(st.sampled_from(NAMES)),
        "thread": draw(st.integers(0, 1)),
        "start_us": start,
        "end_us": start + draw(TIMES),
        "overload_name": draw(st.sampled_from(["", "Tensor", "o" * 60])),
        "fwd_thread": draw(st.integers(0, 1)),
        "input_shapes": draw(st.sampled_from(SHAPES)),
        "stack": draw(st.sampled_from(STACKS)),
        "scope": draw(st.sampled_from([0, 0, 1, 7])),
        "use_device": device,
        "cpu_memory_usage": draw(st.sampled_from([0, 12, -3000, 5 << 20, 7 << 30])),
        "device_memory_usage": draw(st.sampled_from([0, 512, -(1 << 31)])),
        "is_async": draw(st.sampled_from([False, False, False, True])),
        "is_remote": draw(st.booleans()),
        "sequence_nr": draw(st.integers(-1, 2)),
        "node_id": draw(st.sampled_from([-1, -1, 0, 1])),
        "flops": draw(st.sampled_from([0, 0, 999, 12_345_678, 10**19])),
        "trace_name": draw(st.sampled_from(["mm", "add", None])),
        "is_user_annotation": draw(st.booleans()),
        "is_python_function": draw(st.sampled_from([False, False, True])),
    }
    if device is None or draw(st.booleans()):
        spec["is_legacy"] = draw(st.sampled_from([False, False, True]))
        kernel = st.tuples(st.sampled_from(["gemm", "copy"]), st.integers(0, 1), TIMES)
        spec["kernels"] = draw(st.lists(kernel, max_size=2)) if device else []
    else:
        spec["device_type"] = draw(st.sampled_from([1, 1, 12, 15, 19, 20]))  # CUDA, XPU, HPU, MTIA, PrivateUse1
    return spec


def lists_of_specs(max_size: int = 10) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.sampled_from([None, "cuda", "xpu"]).flatmap(lambda device: st.lists(specs(device), max_size=max_size))


TABLE_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "sort_by": st.sampled_from([None, *SORT_KEYS]),
        "row_limit": st.sampled_from([-1, 0, 1, 3, 100]),
        "max_src_column_width": st.sampled_from([None, 2, 10, 75]),
        "max_name_column_width": st.sampled_from([None, 5, 20, 55]),
        "max_shapes_column_width": st.sampled_from([None, 6, 80]),
        "header": st.sampled_from([None, "a header"]),
        "top_level_events_only": st.booleans(),
        "time_unit": st.sampled_from([None, "s", "ms", "us", "ns"]),
    },
)
# The last says whether Python's functions count. Before 2.14 torch had no such choice: they did.
CAN_LEAVE_PYTHON_OUT = "include_python_functions" in inspect.signature(theirs.EventList.key_averages).parameters
GROUPINGS = st.tuples(
    st.booleans(), st.integers(0, 2), st.booleans(), st.booleans() if CAN_LEAVE_PYTHON_OUT else st.just(value=True)
)


def torchs_averages(events: Any, grouping: Sequence[Any]) -> Any:
    """Returns the averages of torch's list for the arguments of ours."""
    return events.key_averages(*(grouping if CAN_LEAVE_PYTHON_OUT else grouping[:3]))


# Attributes that the installed release of torch lacks, though others have them, or that only opspan has.
NOT_IN_TORCH = {"metadata", "metadata_json", "module_hierarchy"} - set(dir(theirs.FunctionEvent(0, "", 0, 0, 0)))


def pair(specs: Sequence[dict[str, Any]], **options: Any) -> tuple[ours.EventList, Any]:
    """The list of ours and that of torch, no tree built."""
    mine, torchs = [], []
    for spec in specs:
        arguments = {name: value for name, value in spec.items() if name != "kernels"}
        number = arguments.pop("device_type", 0)
        mine.append(ours.FunctionEvent(**arguments, device_type=ours.DeviceType(number)))
        torchs.append(theirs.FunctionEvent(**arguments, device_type=TorchDeviceType(number)))
        for kernel in spec.get("kernels", ()):
            mine[-1].append_kernel(*kernel)
            torchs[-1].append_kernel(*kernel)
    return ours.EventList(mine, **options), theirs.EventList(torchs, **options)


def said(what: Callable[[], Any]) -> str:
    """Returns the result as text, or the name of AssertionError if torch refuses."""
    try:
        return str(what())
    except AssertionError:
        return "AssertionError"


PLAIN = (str, int, float, bool, list, tuple, dict, type(None))


def attributes(event: Any) -> dict[str, Any]:
    """Every public attribute and property that has a value of its own, deprecated ones included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        names = [name for name in dir(event) if not name.startswith("_") and name not in NOT_IN_TORCH]
        values = {name: getattr(event, name) for name in names}
    links = {
        "cpu_parent": getattr(values["cpu_parent"], "id", None),
        "cpu_children": [child.id for child in values["cpu_children"] or ()],
        "device_type": str(values["device_type"]),
        "kernels": [tuple(kernel) for kernel in values.get("kernels", ())],
    }
    if "time_range" in values:
        span = values["time_range"]
        links["time_range"] = (span.start, span.end, span.elapsed_us())
    if values.get("event_metadata") is not None:
        fields = theirs.EventMetadata._fields
        links["event_metadata"] = {name: getattr(values["event_metadata"], name) for name in fields}
    return {name: value for name, value in values.items() if isinstance(value, PLAIN)} | links


def files_of(events: Any, folder: Path) -> list[str]:
    """Returns the texts of all files that a list exports."""
    texts = []
    path = folder / "exported"
    events.export_chrome_trace(str(path))
    texts.append(path.read_text(encoding="utf-8"))
    for metric in events.supported_export_stacks_metrics():
        events.export_stacks(str(path), metric)
        texts.append(path.read_text(encoding="utf-8"))
    return texts


def without_nan(text: str) -> str:
    """A share of no time is - in ours."""
    return text.replace("NaN", "  -")


def torchs_table(events: Any, **options: Any) -> str:
    """Returns the text of torch's table, with - for a share of no time.

    Torch refuses events that have a time while all self times are 0. There is no oracle for such an example, so
    Hypothesis draws another one.
    """
    try:
        return without_nan(events.table(**options))
    except AssertionError as error:
        if "Expected time_us == 0" not in str(error):
            raise
        reject()
