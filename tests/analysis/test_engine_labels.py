"""What labels of serving engines say, and which names are no labels."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import opspan
from opspan.analysis.engine_labels import COLUMNS, engine_labels

DETAILED = "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)"
requests = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 10**6)), max_size=6)  # new tokens, tokens before


def label(name: str) -> dict:
    rows = engine_labels(pl.Series([name]))
    assert rows.columns == list(COLUMNS)
    return rows.row(0, named=True)


def said(name: str) -> dict:
    return {column: value for column, value in label(name).items() if value is not None and column != "name"}


def sums(group: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    pairs = [(new, before + new) for new, before in group]
    return (
        sum(q for q, _ in pairs),
        sum(k for _, k in pairs),
        sum(q * q for q, _ in pairs),
        sum(q * k for q, k in pairs),
    )


def columns(phase: str, group: list[tuple[int, int]]) -> dict[str, int]:
    return {f"{phase}_{what}": value for what, value in zip(("sq", "sk", "sqsq", "sqsk"), sums(group), strict=True)}


@given(requests, requests)
def test_detailed_labels_of_vllm_have_all_sums(prefill: list, decode: list) -> None:
    text = ["(sq{}sk{}sqsq{}sqsk{})".format(*sums(group)) for group in (prefill, decode)]
    tokens = sum(new for new, _ in prefill + decode)
    row = label(f"execute_{tokens}_context_{len(prefill)}{text[0]}_generation_{len(decode)}{text[1]}")
    phase = {(True, False): "prefill", (False, True): "decode", (True, True): "mixed"}.get(
        (bool(prefill), bool(decode))
    )
    assert (
        row.items()
        >= {
            "engine": "vllm",
            "phase": phase,
            "tokens": tokens,
            "batch_size": tokens,
            "requests": len(prefill + decode),
            "prefill_requests": len(prefill),
            "decode_requests": len(decode),
            **columns("prefill", prefill),
            **columns("decode", decode),
        }.items()
    )


def test_plain_labels_of_vllm_have_requests_and_tokens() -> None:
    assert said("execute_context_2(888)_generation_3(4)") == {
        "engine": "vllm",
        "phase": "mixed",
        "tokens": 892,
        "requests": 5,
        "prefill_requests": 2,
        "decode_requests": 3,
        "prefill_sq": 888,
        "decode_sq": 4,
    }
    # What the second number counts is not known.
    older = said("execute_context_1(888_788544)_generation_0(0)")
    assert older == said("execute_context_1(888)_generation_0(0)")
    assert (older["phase"], older["tokens"]) == ("prefill", 888)


def test_a_step_without_requests_has_no_phase() -> None:
    row = label("execute_context_0(0)_generation_0(0)")
    assert (row["phase"], row["tokens"], row["requests"]) == (None, 0, 0)
    assert label("step[IDLE bs=0]")["phase"] is None


def test_a_cached_request_may_be_in_any_phase() -> None:
    assert said("execute_new_1_cached_31") == {"engine": "vllm", "requests": 32}
    first = label("execute_new_2_cached_0")
    assert (first["phase"], first["requests"], first["prefill_requests"], first["tokens"]) == ("prefill", 2, 2, None)


def test_a_request_has_one_token_in_the_mode_decode_of_sglang() -> None:
    row = label("step[DECODE bs=32]")
    assert (row["engine"], row["phase"], row["tokens"], row["requests"], row["batch_size"]) == (
        "sglang",
        "decode",
        32,
        32,
        32,
    )
    assert row["decode_sk"] is None


def test_speculative_steps_have_as_many_tokens_as_they_say() -> None:
    plain, detailed = (
        label("step[TARGET_VERIFY bs=2]"),
        label("step[TARGET_VERIFY bs=2 g_sq=8 g_sqsq=32 g_sqsk=96 g_sk=24]"),
    )
    assert (plain["phase"], plain["tokens"], plain["requests"]) == ("decode", None, 2)
    assert (detailed["phase"], detailed["tokens"], detailed["decode_sqsk"]) == ("decode", 8, 96)
    draft = label("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]")
    assert (draft["phase"], draft["tokens"], draft["requests"], draft["batch_size"]) == (None, None, 3, 4)
    extend = label("step[DRAFT_EXTEND_V2 bs=2 c_sq=8 c_sqsq=32 c_sqsk=96 c_sk=24]")
    assert (extend["phase"], extend["tokens"], extend["prefill_sk"]) == (None, 8, 24)


@given(requests, requests)
def test_detailed_labels_of_sglang_have_all_sums(prefill: list, decode: list) -> None:
    (c_sq, c_sk, c_sqsq, c_sqsk), (g_sq, g_sk, g_sqsq, g_sqsk) = sums(prefill), sums(decode)
    count = len(prefill + decode)
    mixed = label(
        f"step[MIXED bs={count} c={len(prefill)} g={len(decode)} c_sq={c_sq} c_sk={c_sk} c_sqsq={c_sqsq} "
        f"c_sqsk={c_sqsk} g_sq={g_sq} g_sk={g_sk} g_sqsq={g_sqsq} g_sqsk={g_sqsk}]"
    )
    assert mixed.items() >= {"phase": "mixed", "tokens": c_sq + g_sq, "requests": count}.items()
    assert mixed.items() >= {**columns("prefill", prefill), **columns("decode", decode)}.items()
    for of_label in (f" c_sq={c_sq}", ""):  # older releases leave it out: it is toks
        extend = label(
            f"step[EXTEND bs={len(prefill)} toks={c_sq}{of_label} c_sqsq={c_sqsq} c_sqsk={c_sqsk} c_sk={c_sk}]"
        )
        assert extend.items() >= {"tokens": c_sq, "decode_sqsk": 0, **columns("prefill", prefill)}.items()


def test_xdit_says_how_many_images() -> None:
    images = {"engine": "xdit", "phase": "diffusion", "batch_size": 2}
    assert said("execute_diffusion_2_256x512") == images
    assert said("iteration_7_execute_diffusion_2_256x512") == images


HUGE = "9" * 19
BROKEN = [
    "",
    "execute_",
    "execute_context_1(888)_generation_0",
    "execute_context_1(888)_generation_0(0) ",
    " execute_context_1(888)_generation_0(0)",
    "execute_context_1(888)_generation_0(0)\n",
    "execute_context_1(888)\n_generation_0(0)",
    "execute_context_-1(888)_generation_0(0)",
    "execute_context_1(+888)_generation_0(0)",
    "execute_context_01(888)_generation_0(0)",
    "execute_context_1(8e3)_generation_0(0)",
    "execute_context_\u0661(888)_generation_0(0)",  # a digit, but not one of ASCII
    "execute_context_1(888)_generation_0(0)\u200b",
    f"execute_context_1({HUGE})_generation_0(0)",
    f"execute_context_1({'9' * 4000})_generation_0(0)",
    "execute_context_1(888)_generation_0(0)_execute_context_1(888)_generation_0(0)",
    DETAILED.replace("sqsk", "sk"),
    DETAILED + "x",
    "my execute_new_1_cached_2",
    "execute_new_1_cached_2.5",
    "step[]",
    "step[DECODE]",
    "step[DECODE bs=]",
    "step[DECODE bs=-1]",
    "step[DECODE bs=1 bs=2]",
    "step[DECODE bs=1 toks=1]",
    "step[EXTEND bs=1]",
    "step[decode bs=1]",
    "step[DECODE  bs=1]",
    f"step[DECODE bs={HUGE}]",
    "step[DECODE bs=1 g_sqsq=1]",
    "step[UNHEARD_OF bs=1]",
    "execute_diffusion_1_256",
    "execute_diffusion_1_256x256_bf16",
    "iteration_execute_diffusion_1_256x256",
]


@pytest.mark.parametrize("name", BROKEN)
def test_a_name_that_does_not_match_completely_is_no_label(name: str) -> None:
    assert not engine_labels(pl.Series([name])).height


VALID = ["step[DECODE bs=32]", "step[EXTEND bs=2 toks=4096]", "execute_new_1_cached_2", DETAILED]


@given(st.sampled_from(VALID), st.integers(0, 200), st.text(max_size=3), st.integers(0, 3))
@example("step[DECODE bs=32]", 18, "\n", 0)
def test_damaged_labels_never_raise(name: str, at: int, put_in: str, cut: int) -> None:
    damaged = name[:at] + put_in + name[at + cut :]
    rows = engine_labels(pl.Series([damaged, None], dtype=pl.String))
    assert rows["name"].to_list() in ([damaged], [])
    if damaged in VALID:
        assert rows.height == 1


def test_each_label_has_one_row_whatever_the_type_of_names() -> None:
    names = ["aten::mm", VALID[0], None, VALID[0], VALID[1]]
    for dtype in (pl.String, pl.Categorical):
        assert engine_labels(pl.Series(names, dtype=dtype))["name"].cast(pl.String).to_list() == sorted(VALID[:2])
        assert engine_labels(pl.Series([], dtype=dtype)).height == 0


@pytest.mark.parametrize(
    ("file", "engine", "phase", "tokens"),
    [
        ("kineto/vllm_graph_execution.json.gz", "vllm", "mixed", 8192),
        ("kineto/b200_eager.json.gz", "vllm", "prefill", 888),
        ("kineto/compiled_flux_step.json.gz", "xdit", "diffusion", None),
    ],
)
def test_labels_of_real_files(traces_dir: Path, file: str, engine: str, phase: str, tokens: int | None) -> None:
    rows = engine_labels(opspan.load(traces_dir / file).ranges["name"])
    assert rows.select("engine", "phase", "tokens").rows() == [(engine, phase, tokens)]
