"""Attention in steps of serving engines: against pairs that are counted one by one, and TraceLens' figures."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import opspan
from analysis.frames import ranges
from opspan.analysis import nest
from opspan.analysis.costs import costs, register_flops
from opspan.analysis.served_attention import OPS

HEADS, KEY_HEADS, WIDTH, VALUE_WIDTH = 8, 2, 4, 6
OP = OPS[1]
requests = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20)), max_size=4)  # new tokens, tokens before


def label_of(prefill: list[tuple[int, int]], decode: list[tuple[int, int]]) -> str:
    text = []
    for group in (prefill, decode):
        q, k = [new for new, _ in group], [new + before for new, before in group]
        squares, products = sum(x * x for x in q), sum(x * y for x, y in zip(q, k, strict=True))
        text.append(f"{len(group)}(sq{sum(q)}sk{sum(k)}sqsq{squares}sqsk{products})")
    tokens = sum(new for new, _ in prefill + decode)
    return f"execute_{tokens}_context_{text[0]}_generation_{text[1]}"


def attention(tokens: int, name: str = OP, key_heads: int = KEY_HEADS, **more: object) -> dict:
    sizes = [[tokens, HEADS, WIDTH], [tokens, key_heads, WIDTH], [tokens, key_heads, VALUE_WIDTH]]
    types = '["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]'
    where = {"start_ns": 20, "end_ns": 30, "kind": "op"}
    return {"name": name, "sizes": str(sizes), "input_types": types, **where, **more}


def step(name: str, start: int = 0, end: int = 100) -> dict:
    return {"name": name, "start_ns": start, "end_ns": end, "kind": "user"}


def counted(*rows: dict) -> list[dict]:
    return costs(nest(ranges(*rows))).rows.to_dicts()


@given(requests, requests, st.integers(0, 3))
def test_every_pair_of_a_query_and_a_key_counts(prefill: list, decode: list, padding: int) -> None:
    tokens = sum(new for new, _ in prefill + decode) + padding
    pairs = hidden = 0
    for new, before in prefill + decode:
        for query in range(before, before + new):
            for key in range(before + new):
                pairs += 1
                hidden += key > query
    found = counted(step(label_of(prefill, decode)), attention(tokens))
    per_pair = 2 * HEADS * (WIDTH + VALUE_WIDTH)
    if not pairs:
        assert not found
        return
    assert [(row["flops"], row["masked_flops"]) for row in found] == [(per_pair * pairs, per_pair * hidden)]
    assert found[0].items() >= {"bytes": None, "type": "bf16", "is_product": True, "is_assumed": False}.items()


LABEL = label_of([(3, 2)], [(1, 8)])


@pytest.mark.parametrize(
    "rows",
    [
        (attention(4),),  # in no step
        (step("execute_context_1(3)_generation_1(1)"), attention(4)),  # the label does not tell the keys
        (step(LABEL), step("step[DECODE bs=4]", 10, 90), attention(4)),  # nor does the nearest
        (step(LABEL), attention(3)),  # a part of the step
        (step(LABEL), attention(4, name="vllm::unified_mla_attention_with_output")),
        (step(LABEL), attention(4, key_heads=3)),
        (step(LABEL), attention(4, sizes="[[4, 32], [4, 8], [4, 8]]")),
        (step(LABEL), attention(4, sizes="[]")),
        (step("execute_4_context_1(sq3sk5sqsq9sqsk2)_generation_1(sq1sk9sqsq1sqsk1)"), attention(4)),
        (step("execute_4_context_1(sq3sk5sqsq8sqsk15)_generation_1(sq1sk9sqsq1sqsk9)"), attention(4)),
        (step(f"execute_4_context_1(sq3sk5sqsq9sqsk{'9' * 18})_generation_1(sq1sk9sqsq1sqsk9)"), attention(4)),
    ],
)
def test_what_no_label_tells_is_unknown(rows: tuple[dict, ...]) -> None:
    assert not counted(*rows)


def test_the_nearest_label_counts_and_what_is_inside_the_op_does_not() -> None:
    inner = attention(4, name="aten::mm", sizes="[[2, 3], [3, 4]]", start_ns=22, end_ns=24)
    outer = label_of([(3, 2)], [(1, 80)])
    found = counted(step(outer), step(LABEL, 10, 90), attention(4), inner)
    assert [row["flops"] for row in found] == [row["flops"] for row in counted(step(LABEL), attention(4))]
    assert len(found) == 1


def test_a_formula_of_the_user_comes_first() -> None:
    register_flops(OP, lambda *_: 7)
    try:
        assert [row["flops"] for row in counted(step(LABEL), attention(4))] == [7]
    finally:
        register_flops(OP, None)


def test_tracelens_counts_nearly_as_many(traces_dir: Path) -> None:
    trace = opspan.load(traces_dir / "kineto" / "vllm_graph_execution.json.gz")
    ranges = trace.analysed.attributed.ranges
    rows = costs(ranges).rows
    rows = rows.filter(ranges["name"].gather(rows["range"]) == OP)
    with (traces_dir / "compiled" / "csvs" / "vllm_piecewise_unified_perf_summary.csv").open() as file:
        (theirs,) = (row for row in csv.DictReader(file) if row["name"] == OP)
    assert rows.height == int(theirs["operation_count"]) == 24
    per_pair = 2 * 64 * (64 + 64)
    assert rows["flops"].unique().to_list() == [per_pair * (7671310 + 34489)]
    own = (rows["flops"] - rows["masked_flops"]).unique().to_list()
    # They leave out half of the diagonal of the prefill: half a pair for each of its 8,155 queries.
    assert own == [float(theirs["GFLOPS"]) * 1e9 + per_pair * 8155 / 2]
