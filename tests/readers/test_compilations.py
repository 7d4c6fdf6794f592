"""What logs say about compiling: real logs beside a count of their lines, logs by hand, and logs that are damaged."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from builders import compile_log as log
from builders import kineto
from opspan.readers.compile_logs import add_to
from opspan.tables import Metadata, Tables

REAL = (
    "tlparse_cache_hit_miss.log",
    "tlparse_comp_failure.log",
    "tlparse_simple.log",
    "tlparse_inductor_provenance_extended_log.txt",
    "tlparse_inductor_provenance_jit_cuda_log.txt",
)
MS = 1_000_000


def read(path: Path, trace: Tables | None = None) -> Tables:
    return add_to(trace or Tables((Metadata("kineto"),)), path)


def compilations(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return read(path).compilations.select(columns).rows()


def breaks(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return read(path).graph_breaks.select(columns).rows()


def codes(trace: Tables) -> dict[str, int]:
    return dict(trace.issues.group_by(pl.col("code").cast(pl.String)).agg(pl.col("count").sum()).iter_rows())


# --- real logs


@pytest.mark.parametrize("name", REAL)
def test_a_real_log_has_as_many_compilations_as_lines_about_them(traces_dir: Path, name: str) -> None:
    path = traces_dir / "compiled" / name
    found = re.findall(r'^V\d+ .*?\] (\{"compilation_metrics": .*)$', path.read_text(), re.MULTILINE)
    expected = [(one["compilation_metrics"], one.get("frame_id"), one.get("attempt")) for one in map(json.loads, found)]

    columns = ("function", "line", "dynamo_ns", "inductor_ns", "fail_type", "attempt")
    assert compilations(path, *columns) == [
        (
            metrics.get("co_name"),
            metrics.get("co_firstlineno"),
            *(
                None if (us := metrics.get(f"{phase}_cumulative_compile_time_us")) is None else us * 1000
                for phase in ("dynamo", "inductor")
            ),
            metrics.get("fail_type"),
            attempt,
        )
        for metrics, _, attempt in expected
    ]
    assert expected


def test_a_real_log_has_hits_and_misses_of_the_cache(traces_dir: Path) -> None:
    rows = compilations(traces_dir / "compiled" / REAL[0], "compile_id", "function", "cache", "duration_ns")

    fn = "_flex_attention_hop_wrapper"
    assert rows == [
        ("0/0", fn, None, 142_473_000),
        ("1/0", "fn", "miss", 4_298_670_000),
        ("0/0", fn, None, 88_329_000),
        ("1/0", "fn", "hit", 242_984_000),
        ("0/0", fn, None, 86_006_000),
        ("1/0", "fn2", "miss", 3_438_591_000),
    ]


def test_phases_include_each_other_as_their_columns_say(traces_dir: Path) -> None:
    rows = read(traces_dir / "compiled").compilations

    for outer, inner in (
        ("duration_ns", "dynamo_ns"),
        ("dynamo_ns", "aot_autograd_ns"),
        ("aot_autograd_ns", "inductor_ns"),
        ("inductor_ns", "code_gen_ns"),
        ("code_gen_ns", "triton_ns"),
    ):
        assert rows.drop_nulls(inner).select((pl.col(inner) <= pl.col(outer)).all()).item()


# --- logs by hand


def test_a_backward_has_the_function_of_its_forward(tmp_path: Path) -> None:
    path = log.write(
        tmp_path / "a.log",
        log.artifact("fx_graph_cache_hit", '{"key": "fa"}', "2/0"),
        log.metrics("2/0", dynamo_cumulative_compile_time_us=2_000_000, aot_autograd_cumulative_compile_time_us=5),
        log.artifact("fx_graph_cache_miss", '{"key": "fb"}', "2/0"),
        log.metrics("2/0", "bwd_compilation_metrics", duration_us=7000, backward_cumulative_compile_time_us=7000),
        log.metrics("2/0", "compilation_metrics_runtime", duration_us=9),
    )

    columns = ("compile_id", "is_backward", "function", "file", "line", "duration_ns", "dynamo_ns", "cache")
    assert compilations(path, *columns) == [
        ("2/0", False, "f", "src/model.py", 3, 2000 * MS, 2000 * MS, "hit"),
        ("2/0", True, "f", "src/model.py", 3, 7 * MS, None, "miss"),
    ]
    assert codes(read(path)) == {"no_provenance": 1}


@pytest.mark.parametrize(
    ("caches", "expected"),
    [("hit hit", "hit"), ("hit miss bypass", "miss"), ("bypass hit", "bypass"), ("", None)],
)
def test_of_several_graphs_one_that_missed_counts(tmp_path: Path, caches: str, expected: str | None) -> None:
    graphs = [log.artifact(f"fx_graph_cache_{one}", f'{{"key": "f{one}"}}') for one in caches.split()]
    path = log.write(tmp_path / "a.log", *graphs, log.metrics(), log.metrics("1/0"))

    assert compilations(path, "compile_id", "cache") == [("0/0", expected), ("1/0", None)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"duration_us": 5, "dynamo_cumulative_compile_time_us": 7}, (5_000, 7_000)),
        ({"duration_us": None, "dynamo_cumulative_compile_time_us": 7}, (7_000, 7_000)),
        ({"duration_us": None, "entire_frame_compile_time_s": 0.25}, (250 * MS, 250 * MS)),
        ({"duration_us": None, "start_time_us": 40, "end_time_us": 42}, (2_000, None)),
        ({"duration_us": None, "start_time_us": 42, "end_time_us": 40}, (None, None)),
        ({"duration_us": None}, (None, None)),
    ],
)
def test_older_logs_have_other_fields(tmp_path: Path, fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    path = log.write(tmp_path / "a.log", log.metrics(**fields))

    assert compilations(path, "duration_ns", "dynamo_ns") == [expected]


def test_a_log_that_was_copied_together_counts_once(tmp_path: Path) -> None:
    entries = [
        log.metrics("0/0"),
        log.graph_break(4),
        log.metrics("0/1", recompile_reason="0/0: x"),
        log.metrics("0/0"),
    ]
    log.write(tmp_path / "a.log", *entries, *entries)
    log.write(tmp_path / "b.log", *entries, log.metrics("0/0", duration_us=5), log.metrics("0/0", pid=log.PID + 1))

    assert sorted(compilations(tmp_path, "compile_id", "pid", "duration_ns")) == [
        ("0/0", log.PID, 5_000),
        ("0/0", log.PID, 2000 * MS),
        ("0/0", log.PID + 1, 2000 * MS),
        ("0/1", log.PID, 2000 * MS),
    ]
    assert breaks(tmp_path, "compile_id", "line") == [("0/0", 4)]


def test_reasons_are_texts_that_are_cut(tmp_path: Path) -> None:
    path = log.write(
        tmp_path / "a.log",
        log.metrics(fail_type="E" * 9_000, fail_reason="b" * 9_000, restart_reasons=["z", "a", 3, "y" * 9_000]),
    )
    ((kind, reason, restarts),) = compilations(path, "fail_type", "fail_reason", "restart_reasons")

    assert (kind, reason) == ("E" * 1_000, "b" * 4_000)
    assert restarts.startswith("a\n\nyyy")
    assert len(restarts) == 4_000


NEW = """\
Graph break in user code at /src/model.py:5
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know
  Hint: Avoid it.

User code traceback:
  File "/src/main.py", line 8, in <module>
    g(x)
  File "/src/model.py", line 5, in f
    print("hello")

Traceback (most recent call last):
  File "/lib/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
    return inner_fn(self, inst)
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
"""
OLD = """\
Graph break in user code at /src/model.py:5
Reason: Unsupported: builtin: print [<class 'ConstantVariable'>] False
User code traceback:
  File "/src/model.py", line 5, in f
    print("hello")

"""
SKIPPED = """\
Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.
torch.compile will skip tracing the frame f (/src/model.py line 2) and fall back to eager.
The graph break occurred in the following user code:
  File "/src/model.py", line 5, in f
    print("hello")

Traceback (most recent call last):
  File "/lib/torch/_dynamo/convert_frame.py", line 10, in x
    y()
ValueError: before
torch._dynamo.exc.Unsupported: Graph break under GenericContextWrappingVariable
  Explanation: Not here.
"""
BACKEND = """\
WON'T CONVERT f /src/model.py line 2
========== TorchDynamo Stack Trace ==========
Traceback (most recent call last):
  File "/lib/torch/_dynamo/output_graph.py", line 10, in x
    y()
RuntimeError: it does not work
========== The above exception occurred while processing the following code ==========

  File "/src/model.py", line 5, in f
    print("hello")

=========="""


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        (NEW, "Failed to trace builtin operator", "Explanation: Dynamo does not know\n  Hint: Avoid it."),
        (OLD, "builtin: print [<class 'ConstantVariable'>] False", None),
        (SKIPPED, "Graph break under GenericContextWrappingVariable", "Explanation: Not here."),
        (BACKEND, "it does not work", None),
    ],
)
def test_a_graph_break_has_its_reason_and_line_in_each_version(
    tmp_path: Path, text: str, reason: str, detail: str | None
) -> None:
    path = log.write(tmp_path / "a.log", log.artifact("dynamo_graph_break_reason", text, "3/1", attempt=2))

    columns = ("compile_id", "attempt", "reason", "detail", "file", "line", "function")
    assert breaks(path, *columns) == [("3/1", 2, reason, detail, "/src/model.py", 5, "f")]
    ((stack,),) = breaks(path, "stack")
    assert stack.splitlines()[-1] == "/src/model.py(5): f"
    assert "torch" not in stack


def test_the_compilers_traceback_is_never_the_reason(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/torch/_dynamo/a.py", line 1, in g\nUnsupported\n'
    texts = (text, f"a reason\n{text}", SKIPPED.partition("Traceback")[0] + text)
    path = log.write(tmp_path / "a.log", *(log.artifact("dynamo_graph_break_reason", text) for text in texts))

    assert breaks(path, "reason")[:2] == [(None,), ("a reason",)]
    assert "Traceback" not in str(breaks(path, "reason", "detail"))


def test_another_text_is_a_break_of_unknown_place(tmp_path: Path) -> None:
    path = log.write(
        tmp_path / "a.log",
        log.artifact("dynamo_graph_break_reason", "something new\nof two lines"),
        log.artifact("dynamo_graph_break_reason", "", "1/0"),
    )

    assert breaks(path, "reason", "detail", "file", "line", "function", "stack") == [
        ("something new", "of two lines", *[None] * 4),
        (*[None] * 6,),
    ]


def test_rows_are_of_the_ranks_of_their_process(tmp_path: Path) -> None:
    for rank in range(3):
        name = f"dedicated_log_torch_trace_rank_{rank}_abc.log"
        log.write(tmp_path / name, log.metrics(pid=900 + rank), log.graph_break(rank + 4, pid=900 + rank))
    trace = Tables((Metadata("kineto", rank=1, rank_by="trace"), Metadata("kineto", rank=7, rank_by="trace")))
    trace = read(tmp_path, trace)

    assert trace.compilations.select("id", "rank", "pid").rows() == [(0, 1, 901)]
    assert trace.graph_breaks.select("id", "rank", "line").rows() == [(0, 1, 5)]
    assert codes(trace)["compilations_elsewhere"] == 2


def test_more_rows_than_the_limit_are_left_out_with_an_issue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSPAN_BUDGET", "0.0001")  # two rows
    some = [one for number in range(5) for one in (log.metrics(f"{number}/0"), log.graph_break(number))]
    trace = read(log.write(tmp_path / "a.log", *some))

    assert (trace.compilations.height, trace.graph_breaks.height) == (2, 2)
    assert codes(trace)["over_budget"] == 6


def test_both_tables_are_saved_joined_and_exported(tmp_path: Path) -> None:
    path = log.write(
        tmp_path / "a.log", log.metrics(), log.metrics("0/1", recompile_reason="0/0: x"), log.graph_break(4)
    )
    traces = [kineto.write(tmp_path / f"{name}.json") for name in "ab"]
    one = opspan.load(traces[0], compiled=path)
    one.save(tmp_path / "saved")
    one.export(tmp_path / "out.json")

    for again in (opspan.load(tmp_path / "saved", traces[1]), opspan.load(tmp_path / "out.json")):
        assert again.compilations.rows() == one.compilations.rows()
        assert again.graph_breaks.rows() == one.graph_breaks.rows()
    assert (one.compilations.height, one.graph_breaks.height) == (2, 1)


def test_lengths_of_time_stay_when_the_clock_is_another(tmp_path: Path) -> None:
    path = log.write(tmp_path / "a.log", log.metrics(dynamo_cumulative_compile_time_us=3))
    early, late = (
        Tables((Metadata("kineto", clock="a", origin_utc_ns=origin, host=None),)) for origin in (0, 5_000_000_000_000)
    )
    both = opspan.tables.side_by_side([early, read(path, late)])

    assert both.compilations.select("rank", "duration_ns", "dynamo_ns").rows() == [(1, 2000 * MS, 3_000)]


# --- damaged logs

ODD = (
    None,
    True,
    -1,
    2**80,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    [],
    ["a", None, {}],
    {},
    {"str": ["f", 1]},
)


def check(path: Path) -> None:
    trace = read(path)
    for name in ("compilations", "graph_breaks"):
        assert trace.frames[name].schema == Tables(()).frames[name].schema
    trace.compilations.write_json()


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_field_may_be_anything(tmp_path: Path, value: object) -> None:
    fields = (
        "duration_us dynamo_cumulative_compile_time_us entire_frame_compile_time_s start_time_us end_time_us "
        "is_forward triton_compile_time_us co_name co_filename co_firstlineno compile_id recompile_reason fail_type "
        "fail_reason restart_reasons"
    ).split()
    ids = ("frame_id", "frame_compile_id", "attempt", "compiled_autograd_id", "rank")
    good = {"compilation_metrics": {"co_name": "f"}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    broken = {"artifact": {"name": "dynamo_graph_break_reason"}}
    entries = [log.entry({"compilation_metrics": {field: value}}) for field in fields]
    entries += [log.entry({**good, name: value}) for name in ids]
    entries += [log.entry({**broken, name: value}, NEW) for name in ids]
    entries += [log.entry({name: value}) for name in ("compilation_metrics", "bwd_compilation_metrics")]
    check(log.write(tmp_path / "a.log", *entries))


def test_a_log_that_was_cut_or_damaged_never_crashes(tmp_path: Path) -> None:
    some = [log.graph_break(number, NEW, f"{number}/0") + log.metrics(f"{number}/0") for number in range(4)]
    raw = "".join(some).encode()
    chance = random.Random(5)
    path = tmp_path / "a.log"
    for end in range(110, len(raw), 97):
        path.write_bytes(raw[:end])
        check(path)
    for _ in range(60):
        damaged = bytearray(raw)
        for _ in range(chance.choice([1, 9, 90])):
            damaged[chance.randrange(100, len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        check(path)


def test_a_long_line_of_words_takes_no_long_time(tmp_path: Path) -> None:
    text = "Error" * 200_000 + "\n" + "a." * 200_000
    check(log.write(tmp_path / "a.log", log.artifact("dynamo_graph_break_reason", text)))
