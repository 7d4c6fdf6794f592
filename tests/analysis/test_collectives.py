"""Ranges, kernels and metadata each show a collective; size, group and time come from the parts that have them."""

from __future__ import annotations

import json

import polars as pl
import pytest

from analysis.frames import ranges, table
from opspan.analysis import attribute
from opspan.analysis.collective_names import KINDS, input_bytes, kernels_named, kinds
from opspan.analysis.collectives import collectives
from opspan.tables import Metadata, Tables
from opspan.tables.metadata import from_distributed

WHERE = {"rank": 0, "pid": 1}


def trace_of(named: list[tuple | dict], kernels: list[dict] = (), options: dict | None = None) -> Tables:
    calls = [
        {"start_ns": one["call"], "end_ns": one["call"] + 1, "tid": 1, "correlation_id": at}
        for at, one in enumerate(kernels)
        if "call" in one
    ]
    work = [
        {"kind": "kernel", "device_id": 0, "stream_id": 7, "correlation_id": at} | one for at, one in enumerate(kernels)
    ]
    for one in work:
        one.pop("call", None)
    said = options or {}
    found = Tables(
        (Metadata(source="test", options=said, told=from_distributed(said.get("distributedInfo"))),),
        ranges=ranges(*named),
        calls=table("calls", calls, **WHERE),
        work=table("work", work, **WHERE),
    )
    return attribute(found)


def named(name: str, start: int, end: int, said: dict | None = None, **more: object) -> dict:
    payload = None if said is None else json.dumps(said)
    return {"name": name, "start_ns": start, "end_ns": end, "payload_json": payload, **more}


def kernel(name: str, start: int, end: int, **more: object) -> dict:
    return {"name": name, "start_ns": start, "end_ns": end, **more}


def only(trace: Tables) -> dict:
    (row,) = collectives(trace).to_dicts()
    return row


TORCH = {"Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float", "Group size": 2}
NESTED = [
    named("c10d::allreduce_", 0, 30),
    named("record_param_comms", 1, 29, TORCH),
    named("nccl:all_reduce", 2, 28, sizes="[[100]]", input_types='["float"]'),
]


def test_an_op_its_record_its_range_and_its_kernel_are_one() -> None:
    row = only(trace_of(NESTED, [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, 60, call=5)]))
    assert (row["kind"], row["bytes"], row["time_ns"], row["group_size"]) == ("all_reduce", 400, 20, 2)
    assert (row["algorithm"], row["protocol"], row["element"], row["work"]) == ("ring", "ll", "Float", 0)


def test_without_its_kernel_it_is_one_of_which_nobody_knows_how_long_it_took() -> None:
    row = only(trace_of(NESTED))
    assert (row["kind"], row["bytes"], row["time_ns"], row["range"]) == ("all_reduce", 400, None, 0)


def test_kernels_of_one_range_on_one_stream_are_one() -> None:
    kernels = [kernel("ncclDevKernel_SendRecv", begin, begin + 5, call=5 + begin // 10) for begin in (40, 50, 60)]
    row = only(trace_of([named("c10d::alltoall_base_", 0, 30)], kernels))
    assert (row["kind"], row["start_ns"], row["end_ns"], row["time_ns"]) == ("all_to_all", 40, 65, 25)


def test_of_its_kernels_the_first_is_the_one_that_is_known_to_have_begun_first() -> None:
    kernels = [kernel("ncclDevKernel_SendRecv", begin, 70, call=5 + at) for at, begin in enumerate((None, 60, 50))]
    row = only(trace_of([named("c10d::alltoall_base_", 0, 30)], kernels))
    assert (row["work"], row["start_ns"], row["end_ns"]) == (2, 50, 70)


def test_what_goes_on_after_its_op_belongs_to_it() -> None:
    """gloo:send begins in torch's op and ends after it: the range that ends with the collective has its time."""
    tensor = {"sizes": "[[5]]", "input_types": '["float"]'}
    row = only(trace_of([named("c10d::send", 0, 30), named("gloo:send", 28, 90, **tensor)]))
    assert (row["name"], row["kind"], row["bytes"], row["time_ns"]) == ("gloo:send", "send", 20, 62)


@pytest.mark.parametrize("pid", [1, None])
def test_what_begins_after_an_op_ended_is_none_of_it(pid: int | None) -> None:
    """gloo:send begins after torch's op, in a range that has nothing to do with it, and ends after that. A file may say
    nothing of processes."""
    rows = [named("c10d::recv_", 0, 10), named("save", 15, 30, kind="user"), named("gloo:send", 20, 90)]
    found = collectives(trace_of([{**row, "pid": pid} for row in rows]))
    assert sorted(found["kind"]) == ["recv", "send"]
    goes_on = [named("record_param_comms", 0, 30, TORCH), named("gloo:all_reduce", 28, 90)]
    row = only(trace_of([{**row, "pid": pid} for row in goes_on]))
    assert (row["time_ns"], row["bytes"]) == (62, 400)


@pytest.mark.parametrize(
    ("sizes", "types", "expected"),
    [("[[100], []]", '["float", "Scalar"]', 400), ("[[100], [50]]", '["float", "float"]', None)],
)
def test_an_op_of_one_tensor_reduces_that_tensor(sizes: str, types: str, expected: int | None) -> None:
    """With several tensors, or a buffer beside them, nothing says which one is reduced."""
    row = only(trace_of([named("symm_mem::one_shot_all_reduce", 0, 9, sizes=sizes, input_types=types)]))
    assert (row["kind"], row["bytes"]) == ("all_reduce", expected)


def test_gloo_on_its_own_thread_is_counted_once() -> None:
    row = only(trace_of([named("c10d::barrier", 0, 3), named("gloo:barrier", 1, 50, tid=2)]))
    assert (row["name"], row["time_ns"], row["bytes"]) == ("gloo:barrier", 49, None)


def test_nccl_says_sizes_and_groups_in_its_own_ranges() -> None:
    comm = {"NCCL communicator ID": 77}
    trace = trace_of(
        [
            named("ncclCommInitRank", 0, 5, comm | {"No. of ranks": 4, "Rank": 1}, domain="NCCL"),
            named("ncclAllGather", 10, 20, comm | {"Message size [bytes]": 1000}, domain="NCCL"),
        ],
        [kernel("ncclDevKernel_AllGather_RING_LL", 30, 40, call=12)],
    )
    row = only(trace)
    assert (row["group"], row["group_size"], row["bytes"]) == ("77", 4, 4000)  # each gives 1000


@pytest.mark.parametrize(
    ("kind", "given", "got", "expected"),
    [
        ("allgather", 10, 40, 160),
        ("reduce_scatter", 40, 10, 160),
        ("gather", 10, 0, 160),
        ("scatter", 0, 10, 160),
        ("all_to_allv", 24, 16, 96),
        ("broadcast", 10, 10, 40),
        ("recv", 0, 10, 40),
        ("barrier", 1, 1, None),
        ("allreduce", 2**62, 2**62, None),
    ],
)
def test_bytes_are_those_of_nccl_tests(kind: str, given: int, got: int, expected: int | None) -> None:
    said = {"Collective name": kind, "In msg nelems": given, "Out msg nelems": got, "dtype": "Int", "Group size": 4}
    assert only(trace_of([named("record_param_comms", 0, 9, said)]))["bytes"] == expected


@pytest.mark.parametrize(
    ("kernel_name", "sizes", "types", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "[[100], [3, 4]]", None, 224),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "[[100]]", None, 400),
        ("ncclDevKernel_AllReduce_RING_LL", "[[100]]", None, None),  # nothing says the type
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "[[100], []]",
            None,
            None,
        ),  # an input without sizes may not be a tensor
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "[[100]]", '["c10::BFloat16"]', 200),
    ],
)
def test_the_name_of_a_kernel_says_the_type_where_sizes_stand_alone(
    kernel_name: str, sizes: str, types: str | None, expected: int | None
) -> None:
    rows = [named("nccl:all_reduce", 2, 28, sizes=sizes, input_types=types)]
    assert only(trace_of(rows, [kernel(kernel_name, 40, 60, call=5)]))["bytes"] == expected


def test_a_run_of_one_group_is_of_that_group() -> None:
    options = {"distributedInfo": {"rank": 1, "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}]}}
    row = only(trace_of([named("gloo:barrier", 1, 50)], options=options))
    assert (row["group"], row["group_size"], row["members"], row["own_rank"]) == ("0", 2, "[0, 1]", 1)


PIPELINE = {"rank": 5, "pg_config": [{"pg_name": "0", "pg_size": 3, "ranks": [3, 5, 7]}]}
MEMBERS = {"Process Group Name": "0", "Process Group Ranks": "[3, 5, 7]", "Group size": 3}


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        # torch's "Rank" is the number of the other rank in the group.
        ("nccl:send 1->2", {"Collective name": "send", "Rank": 2, "Dst Rank": 7}, (5, 5, 7)),
        ("nccl:recv 1<-0", {"Collective name": "recv", "Rank": 0, "Src Rank": 3}, (5, 3, 5)),
        ("nccl:broadcast", {"Collective name": "broadcast", "Rank": 0}, (5, None, None)),
    ],
)
@pytest.mark.parametrize("options", [None, {"distributedInfo": PIPELINE}])
def test_whose_a_send_or_a_receive_is(name: str, said: dict, expected: tuple, options: dict | None) -> None:
    rows = [named("record_param_comms", 0, 30, said | MEMBERS), named(name, 1, 29)]
    row = only(trace_of(rows, [kernel("ncclDevKernel_SendRecv", 40, 60, call=5)], options))
    own = expected[0] if options or "->" in name or "<-" in name else None
    assert (row["own_rank"], row["source"], row["target"]) == (own, *expected[1:])


def test_without_a_record_the_name_of_the_range_says_from_whom_to_whom() -> None:
    row = only(trace_of([named("nccl:recv 1<-0", 1, 29)], [kernel("ncclDevKernel_SendRecv", 40, 60, call=5)]))
    assert (row["kind"], row["source"], row["target"]) == ("recv", 0, 1)


@pytest.mark.parametrize("said", ["[]", {"pg_config": [3], "rank": "x"}, {"pg_config": [{"pg_size": "4"}]}, None])
def test_odd_metadata_says_nothing(said: object) -> None:
    row = only(trace_of([named("gloo:barrier", 1, 50)], options={"distributedInfo": said}))
    assert row["group_size"] is None


def test_what_is_no_collective_is_none() -> None:
    wait = {"Collective name": "wait", "In msg nelems": 5}
    others = [
        "aten::scatter",
        "ncclGroupEnd",
        "MPI_Waitall",
        "aten::broadcast_tensors",
        "_c10d_functional::wait_tensor",
    ]
    rows = [named(name, 10 * at, 10 * at + 5) for at, name in enumerate(others)]
    assert collectives(trace_of([*rows, named("record_param_comms", 90, 99, wait)])).height == 0


def test_no_time_is_never_zero() -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    kernels = [kernel(name, 5, 5), kernel(name, 9, 7), kernel(name, 9, None), kernel(name, None, 7)]
    assert collectives(trace_of([], kernels))["time_ns"].to_list() == [None] * 4


@pytest.mark.parametrize(
    ("name", "kind", "algorithm", "protocol", "element"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_NVLS_SIMPLE", "reduce_scatter", "nvls", "simple", "bf16"),
        ("ncclKernel_AllReduce_TREE_LL128_Sum_float", "all_reduce", "tree", "ll128", "float"),
        ("ncclAllReduceTreeLLKernel_sum_i32", "all_reduce", "tree", "ll", "i32"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "send_recv", "ring", "simple", "int8_t"),
        ("ncclDevKernel_Generic_1", None, None, None, None),
        ("void vllm::cross_device_reduce_1stage<half, 8>", "all_reduce", None, None, None),
    ],
)
def test_what_names_of_kernels_say(
    name: str, kind: str | None, algorithm: str | None, protocol: str | None, element: str | None
) -> None:
    found = kernels_named(pl.Series([name], dtype=pl.Categorical))
    assert found.select("own_kind", "algorithm", "protocol", "own_element").row(0) == (
        kind,
        algorithm,
        protocol,
        element,
    )


def test_each_kind_has_its_own_word() -> None:
    assert kinds(pl.Series([*KINDS, "aten::mm", None])).to_list() == [*KINDS, None, None]


@pytest.mark.parametrize("text", ["{", "3", "[[1]", '[["x"]]', "[[-1]]", None, '[[["1"]]]'])
def test_odd_sizes_say_nothing(text: str | None) -> None:
    assert input_bytes(text, '["float"]') is None
