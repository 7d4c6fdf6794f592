"""Real traces of torch.profiler against a second reading of the same files: Python's own json, an event at a time."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from opspan.analysis import analyse
from opspan.trace import Trace

FILES = (
    "alexnet_sync_events.json.gz",
    "b200_eager.json.gz",
    "bert_h100_foreign_thread_functions.json.gz",
    "compare_base.json.gz",
    "compiled_triton.json.gz",
    "cpu_only.pt.trace.json.gz",
    "event_sync_multi_stream.json.gz",
    "mi300_ddp_resnet18.json.gz",
    "mtia_inference.json.gz",
    "norm_layers.json.gz",
    "ns_resolution.pt.trace.json.gz",
    "rank0_sampled.json.gz",
    "rank1_sampled.json.gz",
    "resnet50_memory_without_category.pt.trace.json.gz",
    "resnet50_torch1.8.pt.trace.json.gz",
    "triton_two_pids.json.gz",
    "vllm_graph_execution.json.gz",
)
TABLES = {
    "ranges": {"cpu_op", "operator", "user_annotation"},
    "calls": {"cuda_runtime", "cuda_driver", "runtime", "mtia_runtime"},
    "work": {"kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset", "overhead", "cuda_sync"} | {"mtia_ccp_events"},
    "functions": {"python_function"},
}
Event = dict[str, Any]
Both = tuple[Trace, list[Event]]


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest, traces_dir: Path) -> Both:
    path = traces_dir / "kineto" / request.param
    if not path.is_file():
        pytest.skip(f"{request.param} is not among the recorded traces")
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return opspan.load(path), document if isinstance(document, list) else document["traceEvents"]


def category(event: Event) -> str:
    return str(event.get("cat", "")).lower()


def ns(time: Any) -> int:
    return int((Decimal(time) * 1000).to_integral_value())


def spans(events: list[Event], table: str) -> list[Event]:
    return [event for event in events if event["ph"] == "X" and category(event) in TABLES[table]]


def external(event: Event) -> int | None:
    """The number of its op. Old files write it in lower case."""
    args = event.get("args", {})
    return args.get("External id", args.get("external id"))


def of(events: list[Event]) -> Counter[tuple[str, int, int]]:
    return Counter((event["name"], ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])) for event in events)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_span_is_there_with_its_times(both: Both, table: str) -> None:
    trace, events = both
    name = "full_name" if table == "work" else "name"
    rows = trace.frames[table].select(name, "start_ns", "end_ns").rows()
    assert Counter(rows) == of(spans(events, table))


def test_every_event_is_read_or_is_the_profilers_own(both: Both) -> None:
    trace, events = both
    read = sum(trace.frames[table].height for table in TABLES)
    arrows = sum(event["ph"] in "sf" for event in events)
    names = sum(event["ph"] == "M" for event in events)
    windows = sum(category(event) in ("trace", "gpu_user_annotation") for event in events)
    windows += sum(event["name"] == "Record Window End" or event["name"].startswith("Iteration S") for event in events)
    assert read + trace.memory.height + arrows + names + windows == len(events)
    assert trace.issues.is_empty()


def test_work_is_of_the_process_whose_call_has_its_number(both: Both) -> None:
    """If several calls have the number, it is the process in which the operators ran."""
    trace, events = both
    working = {event["pid"] for event in events if category(event) in ("cpu_op", "operator")}
    callers: dict[Any, set[Any]] = {}
    for event in spans(events, "calls"):
        callers.setdefault(event.get("args", {}).get("correlation"), set()).add(event["pid"])
    launched = 0
    for pid, number in trace.work.select("pid", "correlation_id").rows():
        said = callers.get(number, set()) if number is not None else set()
        if said:
            launched += 1
            assert {pid} == (said if len(said) == 1 else said & working)
    assert trace.coverage.work_with_call.count <= launched
    assert launched or not trace.work.height or not spans(events, "calls")


def test_ops_say_what_their_args_do(both: Both) -> None:
    trace, events = both
    ops = spans(events, "ranges")

    def said(event: Event) -> tuple[Any, ...]:
        args = event.get("args", {})
        sizes = args.get("Input Dims", args.get("Input dims")) or None
        seq = args.get("Sequence number")
        return event["name"], ns(event["ts"]), int(event["tid"]), seq, json.dumps(sizes) if sizes else None

    rows = trace.ranges.select("name", "start_ns", "tid", "seq", "sizes").rows()
    assert Counter(rows) == Counter(map(said, ops))


def test_work_is_on_its_device_and_stream(both: Both) -> None:
    trace, events = both
    fields = ("device", "stream", "correlation", "bytes", "grid", "block")

    def said(event: Event) -> tuple[Any, ...]:
        args = event["args"]
        if category(event) == "mtia_ccp_events":
            args = {**args, "device": event["pid"], **({"bytes": args["size"]} if "size" in args else {})}
        return event["name"], *(json.dumps(args[field]) if field in args else None for field in fields)

    work = trace.work.filter(~pl.col("is_overhead"))
    axes = [pl.concat_list(f"{of}_{axis}" for axis in "xyz") for of in ("grid", "block")]
    numbers = work.select("full_name", "device_id", "stream_id", "correlation_id", "bytes")
    rows = []
    for (name, *values), (grid, block) in zip(
        numbers.rows(), work.select(*(a.alias(str(i)) for i, a in enumerate(axes))).rows(), strict=True
    ):
        sizes = [None if None in size else json.dumps(size) for size in (grid, block)]
        rows.append((name, *(None if value is None else str(value) for value in values), *sizes))
    assert Counter(rows) == Counter(said(event) for event in spans(events, "work") if category(event) != "overhead")


def test_memory_adds_up(both: Both) -> None:
    trace, events = both
    taken = [event["args"] for event in events if event["ph"] == "i" and event["name"] == "[memory]"]
    assert len(taken) == trace.memory.height
    signed = trace.memory.select(pl.col("bytes") * pl.when(pl.col("event") == "free").then(-1).otherwise(1))
    assert sorted(signed["bytes"].to_list()) == sorted(args["Bytes"] for args in taken)


def test_work_is_attributed_to_the_op_that_the_file_names(both: Both) -> None:
    """Kineto gives ops a number (External id), and the calls and work of an op the same. Annotations have none of those
    numbers of old, so that what runs in one inside an op has the op's."""
    trace, events = both
    launched = [event for event in spans(events, "work") if external(event) is not None]
    launched = [event for event in launched if external(event) != event["args"].get("correlation")]
    if not launched:
        pytest.skip("work in this file has no number of an op, or only that of its call")
    name_of = {external(event): event["name"] for event in spans(events, "ranges")}
    expected = {
        (event["name"], ns(event["ts"]), event["args"]["stream"]): name_of[external(event)]
        for event in launched
        if external(event) in name_of
    }
    analysed = analyse(trace)
    names, kinds, parents = (analysed.ranges[column].to_list() for column in ("name", "kind", "parent"))
    for name, start_ns, stream, owner in analysed.work.select("full_name", "start_ns", "stream_id", "range").rows():
        wanted = expected.pop((name, start_ns, stream), None)
        if wanted is None:
            continue
        if names[owner] != wanted and kinds[owner] == "user":
            owner = parents[owner]
        assert names[owner] == wanted
    assert not expected


def test_backward_is_linked_as_the_arrows_say(both: Both) -> None:
    trace, events = both
    if not any(category(event) == "fwdbwd" for event in events):
        pytest.skip("the file has no arrows from forward to backward")
    ranges = analyse(trace).ranges
    assert ranges["id"].to_list() == list(range(ranges.height))
    compared = 0
    for backward, forward in trace.relations.select("range_id", "other_id").rows():
        # The forward of a graph of TorchScript's is no op that torch records: its number leads to one beside it.
        if not ranges["name"][backward].startswith("torch::jit::"):
            assert ranges["forward"][backward] == forward
            compared += 1
    assert compared >= 50


@pytest.mark.slow
def test_tables_and_exports_are_made(both: Both, tmp_path: Path) -> None:

    trace, _ = both
    assert trace.events().key_averages().table(sort_by="self_cpu_time_total")
    trace.export(tmp_path / "again.json")
    again = opspan.load(tmp_path / "again.json")
    for table in TABLES:
        columns = (
            ["name", "tid", "start_ns", "end_ns"] if table != "work" else ["full_name", "stream_id", "correlation_id"]
        )
        there, here = (one.frames[table].select(columns) for one in (again, trace))
        shift = (trace.origin_utc_ns or 0) - (again.origin_utc_ns or 0)
        if table != "work":
            here = here.with_columns(pl.col("start_ns", "end_ns") + shift)
        assert there.sort(columns).equals(here.sort(columns)), table


def test_without_processes_and_threads_work_is_of_the_op_of_its_external_id(traces_dir: Path, tmp_path: Path) -> None:
    path = traces_dir / "kineto" / "bert_h100_foreign_thread_functions.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    for event in document["traceEvents"]:
        event.pop("pid", None)
        event.pop("tid", None)
    (tmp_path / "run.json").write_text(json.dumps(document))

    trace = opspan.load(tmp_path / "run.json")

    ops = {
        event["args"]["External id"]: event["name"]
        for event in document["traceEvents"]
        if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})
    }
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    expected = Counter(ops[event["args"]["External id"]] for event in kernels)
    found = trace.analysed.attributed
    work = found.work.filter(kind="kernel")
    assert Counter(found.ranges["name"].gather(work["range"])) == expected
    assert "NaN" not in trace.events().key_averages().table()
