"""What torch.compile wrote about its kernels: real logs beside their own JSON, logs by hand, and damaged logs."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from builders import compile_log as log
from builders import kineto
from opspan.errors import NotATrace, OpspanError
from opspan.readers.compile_logs import add_to
from opspan.tables import Metadata, Tables
from opspan.views.missing import without
from tiers import RELEASE

JIT = "tlparse_inductor_provenance_jit_cuda_log.txt"
EXTENDED = "tlparse_inductor_provenance_extended_log.txt"
Line = tuple[str | None, int | None]


def read(path: Path, **metadata: Any) -> Tables:
    return add_to(Tables((Metadata("kineto", **metadata),)), path)


def lines_of(trace: Tables) -> dict[str, set[Line]]:
    """Returns the lines of each kernel, with the number of its call."""
    found: dict[str, set[Line]] = defaultdict(set)
    for kernel, number, file, line in trace.provenance.select("kernel", "call_number", "file", "line").iter_rows():
        found[kernel if number is None else f"{kernel}:{number}"] |= {(file, line)} if file else set()
    return dict(found)


def codes(trace: Tables) -> dict[str, int]:
    return dict(trace.issues.group_by("code").agg(pl.col("count").sum()).cast({"code": pl.String}).iter_rows())


def rows(trace: Tables, *columns: str) -> list[tuple[Any, ...]]:
    return trace.provenance.select(columns).rows()


# --- the twin: reads a whole log at once, and knows nothing of graphs


def payloads(path: Path) -> Iterator[tuple[str, str]]:
    for text in re.split(r"^(?=[VIWEC]\d{4} )", path.read_text(), flags=re.MULTILINE):
        if match := re.match(r"\S+ \S+ \d+ \S+:\d+\] (\{.*)\n", text):
            values = json.loads(match[1])
            name = values["artifact"]["name"] if "artifact" in values else next(iter(values))
            yield name, "".join(line[1:] for line in text.splitlines(keepends=True)[1:])


def lines_of_nodes(graph: str) -> dict[str, Line]:
    found: dict[str, Line] = {}
    line: Line | None = None
    for text in graph.splitlines():
        if match := re.search(r"# File: (.*):(\d+) in ", text):
            line = match[1], int(match[2])
        elif "No stacktrace found" in text:
            line = None
        elif (match := re.match(r"\s+(\w+)(: \"[^\"]*\")? = ", text)) and line:
            found[match[1]] = line
    return found


def twin(path: Path) -> dict[str, set[Line]]:
    """Returns the lines of each kernel, from the artifacts' own JSON."""
    found: dict[str, set[Line]] = defaultdict(set)
    texts = dict(payloads(path))
    nodes = lines_of_nodes(texts["after_post_grad_graph"])
    before = lines_of_nodes(texts["before_pre_grad_graph"])
    mappings = json.loads(texts[log.NODES])
    for kernel, names in mappings["cppCodeToPost"].items():
        for name in names:
            others = {before[one] for one in mappings["postToPre"].get(name, []) if one in before}
            found[kernel] |= {nodes[name]} if name in nodes else others
    for kernel, some in json.loads(texts.get(log.STACKS, "{}")).items():
        for text in some:
            frames = re.findall(r'File "(.*?)", line (\d+)', text)
            file, line = [one for one in frames if "/torch/" not in one[0]][-1]
            found[kernel].add((file, int(line)))
    return dict(found)


@pytest.mark.parametrize("name", [JIT, EXTENDED])
def test_each_kernel_of_a_real_log_has_exactly_the_lines_in_its_artifacts(traces_dir: Path, name: str) -> None:
    path = traces_dir / "compiled" / name

    assert lines_of(read(path)) == (expected := twin(path))
    assert len(expected) > 3
    assert all(expected.values())


def test_a_real_log_says_what_each_node_is(traces_dir: Path) -> None:
    trace = read(traces_dir / "compiled" / JIT)

    kernel = trace.provenance.filter(kernel="triton_poi_fused_addmm_relu_sigmoid_0")
    assert kernel.select("node", "op", "written_as", "line").rows() == [
        ("sigmoid", "aten::sigmoid", "torch.sigmoid", 31),
        ("relu", "aten::relu", "torch.nn.functional.relu", 30),
        ("add_tensor_1", "aten::add", "torch._C._nn.linear", 29),
    ]
    whole = ("compile_id", "aot_id", "phase", "source_ops", "known_by", "is_cut")
    assert set(kernel.select(whole).rows()) == {
        ("0/0", "0_inference", "inference", "aten::addmm; aten::relu; aten::sigmoid", "artifact", False)
    }
    assert codes(trace) == {}


@pytest.mark.parametrize("name", ["tlparse_simple.log", "tlparse_cache_hit_miss.log"])
def test_comments_of_generated_code_say_what_no_artifact_does(traces_dir: Path, name: str) -> None:
    trace = read(traces_dir / "compiled" / name)

    triton = trace.provenance.filter(pl.col("kernel").cast(pl.String).str.starts_with("triton"))
    assert set(triton["known_by"]) == {"code"}
    assert triton.filter(pl.col("graph") == triton["graph"][0])["line"].count()


def test_a_log_without_kernels_is_said_to_have_none(traces_dir: Path) -> None:
    trace = read(traces_dir / "compiled" / "tlparse_comp_failure.log")

    assert trace.provenance.is_empty()
    assert codes(trace)["no_provenance"] == 1


# --- logs by hand


def test_a_graph_begins_where_an_entry_comes_again(tmp_path: Path) -> None:
    path = log.write(
        tmp_path / "dedicated_log_torch_trace_x.log",
        log.code("# AOT ID: ['0_forward']\n"),
        log.lines({"triton_poi_fused_add_0:1": [3, 4]}),
        log.lines({"triton_poi_fused_add_0:1": [7]}, "1/0"),
        log.artifact("fx_graph_cache_miss", '{"key": "fabc"}'),
        log.code("# AOT ID: ['0_backward']\n"),
        log.lines({"triton_poi_fused_add_0:1": [5], "extern_kernels.mm:2": [3]}),
    )

    assert rows(read(path), "graph", "compile_id", "phase", "cache_key", "kernel", "call_number", "line") == [
        (0, "0/0", "forward", "fabc", "triton_poi_fused_add_0", 1, 3),
        (0, "0/0", "forward", "fabc", "triton_poi_fused_add_0", 1, 4),
        (2, "1/0", None, None, "triton_poi_fused_add_0", 1, 7),
        (3, "0/0", "backward", None, "triton_poi_fused_add_0", 1, 5),
        (3, "0/0", "backward", None, "extern_kernels.mm", 2, 3),
    ]


def test_the_line_is_that_of_the_program_and_not_of_torch(tmp_path: Path) -> None:
    inner = ("lib/torch/nn/modules/linear.py", 125, "forward")
    both = log.stack(("src/model.py", 9, "forward"), inner)
    graph = (
        '# File: lib/torch/nn/modules/linear.py:125 in forward, code: x\n mm: "f32[1]" = torch.ops.aten.mm.default(a)'
    )
    path = log.write(
        tmp_path / "a.log",
        log.artifact(log.POST, graph),
        log.artifact(log.NODES, json.dumps({"cppCodeToPost": {"extern_kernels.mm:1": ["mm"]}})),
        log.stacks({"extern_kernels.mm:1": [both], "triton_poi_fused_add_0:2": [log.stack(inner)]}),
    )

    assert rows(read(path), "node", "op", "file", "line", "stack") == [
        (
            "mm",
            "aten::mm",
            "src/model.py",
            9,
            "src/model.py(9): forward\nlib/torch/nn/modules/linear.py(125): forward",
        ),
        (None, None, *inner[:2], "lib/torch/nn/modules/linear.py(125): forward"),
    ]


def test_stacks_that_end_in_one_line_are_not_given_to_nodes(tmp_path: Path) -> None:
    helper = ("src/model.py", 3, "helper")
    some = [log.stack(("src/model.py", number, "forward"), helper) for number in (8, 9)]
    path = log.write(
        tmp_path / "a.log",
        log.artifact(log.POST, "# File: src/model.py:3 in helper, code: x\n mul = torch.ops.aten.mul.Tensor(a, b)"),
        log.artifact(log.NODES, json.dumps({"cppCodeToPost": {"cpp_fused_mul_0:1": ["mul"]}})),
        log.stacks({"cpp_fused_mul_0:1": some}),
    )

    assert rows(read(path), "node", "line", "function") == [
        ("mul", None, None),
        (None, 3, "helper"),
        (None, 3, "helper"),
    ]


def test_only_the_name_says_the_ops_of_a_kernel_without_more(tmp_path: Path) -> None:
    text = "cpp_fused_add_native_la = async_compile.cpp_pybinding([])\ndef call():\n    cpp_fused_add_native_la(a)\n"
    trace = read(log.write(tmp_path / "a.log", log.code(text)))

    assert rows(trace, "kernel", "call_number", "source_ops", "known_by", "is_cut") == [
        ("cpp_fused_add_native_la", 1, "aten::add", "name", True)
    ]
    assert codes(trace) == {"only_named": 1}
    assert "--compiled" not in without(trace, "line")


def test_what_is_not_of_the_compiler_is_counted(tmp_path: Path) -> None:
    good = log.lines({"triton_poi_fused_add_0:1": [3]})
    head, *payload = good.splitlines(keepends=True)
    path = log.write(
        tmp_path / "a.log",
        "Loading checkpoint shards: 100%\n",
        log.entry({"str": ["torch/x.py", 0]}),
        log.artifact("some_new_artifact", "{}"),
        head,
        "a line of another process\n",
        *payload,
        log.artifact(log.STACKS, '{"triton_poi', "1/0"),
        log.lines({"triton_poi_fused_add_0:1": [4]}, "2/0", md5="0" * 32),
        log.entry({"x": 1}).replace('{"x"', '{"x'),
        good[: len(good) - 30],
    )
    trace = read(path)

    assert [line for (line,) in rows(trace, "line")] == [3, 4]
    assert codes(trace) == {"foreign_lines": 2, "other_artifacts": 1, "damaged_log": 4, "truncated_file": 1}


def test_a_line_past_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", "0.00001")  # 671 bytes a line
    first, last = log.lines({"triton_poi_fused_add_0:1": [3]}), log.lines({"triton_poi_fused_mul_1:1": [4]}, "1/0")
    path = log.write(tmp_path / "a.log", first, "x" * 5000 + "\n", last)
    trace = read(path)

    assert [line for (line,) in rows(trace, "line")] == [3, 4]
    assert codes(trace) == {"over_budget": 1}


def test_logs_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(log.lines({"triton_poi_fused_add_0:1": [3]}).encode()))

    assert [line for (line,) in rows(read(tmp_path), "line")] == [3]


# --- folders, JSON, and ranks


def test_a_folder_of_torch_compile_debug_has_a_folder_for_each_graph(tmp_path: Path) -> None:
    graph = tmp_path / "run_2026_01_01_01_01_01_000000-pid_700" / "torchinductor" / "model__3_forward_1.0"
    graph.mkdir(parents=True)
    text = "# File: src/model.py:9 in forward, code: y\n add = torch.ops.aten.add.Tensor(a, b)"
    (graph / "fx_graph_transformed.py").write_text(text)
    (graph / "output_code.py").write_text("")
    mappings = {"cppCodeToPost": {"cpp_fused_add_0:1": ["add"]}, "postToPre": {"add": ["y"]}}
    (graph / f"{log.NODES}.json").write_text(json.dumps(mappings))

    assert rows(read(tmp_path), "aot_id", "phase", "kernel", "node", "op", "line") == [
        ("3_forward", "forward", "cpp_fused_add_0", "add", "aten::add", 9)
    ]


def test_a_json_of_kernels_is_read_by_itself_and_in_a_folder(tmp_path: Path) -> None:
    frames = [log.stack(("src/model.py", 9, "forward"))]
    kernels = {"cpp_fused_add_0:1": {"stack_traces": frames, "post_grad_nodes": [], "pre_grad_nodes": ["y"]}}
    (tmp_path / "kernels.json").write_text(json.dumps(kernels))
    (tmp_path / "other.json").write_text('{"a": 1}')

    for path in (tmp_path, tmp_path / "kernels.json"):
        assert rows(read(path), "kernel", "call_number", "line", "written_as") == [("cpp_fused_add_0", 1, 9, "y")]


@pytest.mark.parametrize("name", ["", "notes.txt", "other.json"])
def test_a_path_without_anything_of_the_compiler_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "other.json").write_text('{"a": 1}')

    with pytest.raises(NotATrace, match=r"has nothing that torch\.compile wrote; expected a folder of TORCH_TRACE"):
        read(tmp_path / name)


def test_a_log_belongs_to_the_rank_that_it_says_or_to_its_process(tmp_path: Path) -> None:
    for rank in range(3):
        name = f"dedicated_log_torch_trace_rank_{rank}_abc.log"
        log.write(tmp_path / name, log.lines({f"triton_poi_fused_add_{rank}:1": [rank]}, pid=900 + rank))
    ranges = [{"rank": 0, "pid": 902, "name": "a"}]
    trace = Tables((Metadata("kineto"),), ranges=pl.DataFrame(ranges))
    by_number = Tables((Metadata("kineto", rank=1, rank_by="trace"), Metadata("kineto", rank=7, rank_by="trace")))

    by_process = add_to(trace, tmp_path)
    assert rows(add_to(by_number, tmp_path), "rank", "line") == [(1, 1)]
    assert (0, 2) in rows(by_process, "rank", "line")
    assert codes(add_to(by_number, tmp_path))["compiled_elsewhere"] == 2


def test_a_log_of_another_process_is_left_out_if_a_log_is_of_a_process_of_the_trace(tmp_path: Path) -> None:
    log.write(tmp_path / "own.log", log.lines({"triton_poi_fused_add_0:1": [3]}, pid=902))
    log.write(tmp_path / "other.log", log.lines({"triton_poi_fused_mul_0:1": [4]}, pid=903))
    trace = Tables((Metadata("kineto"),), ranges=pl.DataFrame([{"rank": 0, "pid": 902, "name": "a"}]))

    assert rows(add_to(trace, tmp_path), "kernel", "line") == [("triton_poi_fused_add_0", 3)]
    assert codes(add_to(trace, tmp_path))["compiled_elsewhere"] == 1
    assert len(rows(add_to(trace, tmp_path / "other.log"), "line")) == 1


def test_a_log_of_an_unknown_process_is_about_all_ranks(tmp_path: Path) -> None:
    path = log.write(tmp_path / "a.log", log.lines({"triton_poi_fused_add_0:1": [3]}))
    trace = Tables((Metadata("kineto", rank=1), Metadata("kineto", rank=7)))

    assert rows(add_to(trace, path), "id", "graph", "rank", "line") == [(0, 0, 1, 3), (1, 1, 7, 3)]


def test_the_table_is_saved_and_joined_with_that_of_other_traces(tmp_path: Path) -> None:
    import opspan

    path = log.write(tmp_path / "a.log", log.lines({"triton_poi_fused_add_0:1": [3, 4]}))
    traces = [kineto.write(tmp_path / f"{name}.json") for name in "ab"]
    one = opspan.load(traces[0], compiled=path)
    one.save(tmp_path / "saved")
    again = opspan.load(tmp_path / "saved", traces[1])

    assert again.provenance.rows() == one.provenance.rows()
    assert one.provenance.height == 2


# --- damaged logs


def check_damaged(path: Path) -> None:
    try:
        trace = read(path)
    except OpspanError:
        return
    assert trace.provenance.schema == Tables(()).provenance.schema


STEPS = [pytest.param(1_000, marks=RELEASE), pytest.param(29_000)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", [JIT, EXTENDED])
def test_a_log_that_was_cut_is_read_as_far_as_it_goes(traces_dir: Path, tmp_path: Path, name: str, step: int) -> None:
    raw = (traces_dir / "compiled" / name).read_bytes()
    whole = lines_of(read(traces_dir / "compiled" / name))
    for end in range(0, len(raw), step):
        path = tmp_path / "cut.log"
        path.write_bytes(raw[:end])
        try:
            found = lines_of(read(path))
        except OpspanError:
            continue
        # Without its artifacts, the calls in the generated code are numbered.
        assert {kernel.partition(":")[0] for kernel in found} <= whole.keys()


def test_random_bytes_raise_only_errors_of_opspan(traces_dir: Path, tmp_path: Path) -> None:
    raw = (traces_dir / "compiled" / JIT).read_bytes()
    chance = random.Random(7)
    for _ in range(12):
        damaged = bytearray(raw)
        for _ in range(chance.choice([3, 300, 30_000])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path = tmp_path / "damaged.log"
        path.write_bytes(damaged)
        check_damaged(path)


@pytest.mark.parametrize(
    "payload",
    ["[]", "null", "1", '{"a": 1}', '{"a": [1, null, {}]}', "[" * 20_000, '{"cppCodeToPost": 3}', '{"": [""]}', "{}"],
)
@pytest.mark.parametrize("name", [log.NODES, log.STACKS, log.POST, "inductor_triton_kernel_to_post_grad_nodes"])
def test_a_payload_may_be_any_json(tmp_path: Path, name: str, payload: str) -> None:
    check_damaged(log.write(tmp_path / "a.log", log.artifact(name, payload)))
