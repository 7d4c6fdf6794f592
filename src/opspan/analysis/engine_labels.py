"""Reads the labels that serving engines give to their steps: what a step did, and for how many requests and tokens.

    engine_labels(names) -> one row for each distinct name that is a label (COLUMNS).
    labels_of_steps(steps) -> for each name of a step (`iterations`), what it says; null if it is no label.
    alike(steps) -> for each name of a step, a text that is the same for steps with the same work.

Labels, each followed by the engine and the release or setting that writes it:

    execute_context_1(888)_generation_4(4)                            vLLM
    execute_context_1(888_788544)_generation_0(0)                     vLLM with older patches for analysis
    execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)
                                                                      vLLM, detailed_trace_annotation
    execute_new_1_cached_31                                           vLLM 0.11 and 0.12
    step[DECODE bs=32], step[EXTEND bs=2 toks=4096]                   SGLang
    step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=30 g_sk=30]               SGLang, detailed annotations
    step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]
                                                                      SGLang, detailed annotations
    step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]                             SGLang, replays of a draft model
    execute_diffusion_1_256x256, iteration_0_execute_diffusion_1_256x256        xDiT

A name is a label only if the complete name has one of these forms. Numbers have at most 18 digits, and no sign and no
leading zeros, because engines print integers. A request is in its prefill (context, extend) until its first token is
generated, and then in its decode (generation). These are the columns; the values that a label does not have are null:

    name: the label.
    engine: vllm, sglang or xdit.
    phase: prefill, decode or mixed, by the requests of the step; diffusion for xDiT. It is null for a step without
        requests, for SGLang's modes other than EXTEND, SPLIT_PREFILL, DECODE, TARGET_VERIFY, VERIFY and MIXED, and for
        execute_new_N_cached_M with M > 0: a cached request may be in its prefill or in its decode.
    tokens: how many tokens the step computes, prefill_sq + decode_sq. SGLang's mode DECODE means one token for each
        request. TARGET_VERIFY means several, and only detailed labels say how many.
    requests: how many requests are in the step.
    prefill_requests, decode_requests: how many of them are in their prefill, and how many in their decode.
    batch_size: the batch size as the engine counts it: tokens for vLLM, requests for SGLang (with the padding of a
        captured graph in DRAFT_LOOP), images for xDiT.
    prefill_sq, decode_sq: the sum of q over the requests of the phase. q is a request's number of queries (new tokens).
    prefill_sk, decode_sk: the sum of k. k is a request's number of keys (all tokens so far, with the new ones).
    prefill_sqsq, decode_sqsq: the sum of q times q.
    prefill_sqsk, decode_sqsk: the sum of q times k: the pairs of a query and a key of the same request.

If a label says that no request is in a phase, the sums of this phase are 0. DRAFT_EXTEND_V2 has the sums of its
requests as prefill_*, as the label does, although these requests may be in their decode.
"""

from __future__ import annotations

from functools import cache

import polars as pl

_col = pl.col
ENGINES = pl.Enum(["vllm", "sglang", "xdit"])
SERVING_PHASES = ("prefill", "decode", "mixed", "diffusion")
_SUMS = ("sq", "sk", "sqsq", "sqsk")
_OF_PREFILL, _OF_DECODE = ([f"{phase}_{one}" for one in _SUMS] for phase in ("prefill", "decode"))
COUNTS = ("tokens", "requests", "prefill_requests", "decode_requests", "batch_size", *_OF_PREFILL, *_OF_DECODE)
COLUMNS = ("name", "engine", "phase", *COUNTS)

_N = r"(?:0|[1-9][0-9]{0,17})"


def _number(column: str) -> str:
    return rf"(?P<{column}>{_N})"


def _vllm_sums(columns: list[str]) -> str:
    return rf"\({''.join(one + _number(column) for one, column in zip(_SUMS, columns, strict=True))}\)"


def _sglang_sums(letter: str, columns: list[str]) -> str:
    """Returns the pattern for the sums of a step with one phase. Older releases leave out the first sum."""
    sq, sk, sqsq, sqsk = (f" {letter}_{one}={_number(at)}" for one, at in zip(_SUMS, columns, strict=True))
    return rf"(?:(?:{sq})?{sqsq}{sqsk}{sk})?"


def _sglang_both() -> str:
    letters = (("c", _OF_PREFILL), ("g", _OF_DECODE))
    sums = "".join(f" {x}_{one}={_number(at)}" for x, of in letters for one, at in zip(_SUMS, of, strict=True))
    return rf"(?: c={_number('prefill_requests')} g={_number('decode_requests')}{sums})?"


@cache
def _forms() -> tuple[tuple[str, str], ...]:
    """Returns the engine and the pattern of each form. The groups of a pattern have the names of columns, except
    for `mode`, `toks`, `new` and `cached`."""
    size = rf" bs={_number('batch_size')}"
    return (
        (
            "vllm",
            rf"execute_{_number('batch_size')}_context_{_number('prefill_requests')}{_vllm_sums(_OF_PREFILL)}"
            rf"_generation_{_number('decode_requests')}{_vllm_sums(_OF_DECODE)}",
        ),
        (
            "vllm",
            rf"execute_context_{_number('prefill_requests')}\({_number('prefill_sq')}(?:_{_N})?\)"
            rf"_generation_{_number('decode_requests')}\({_number('decode_sq')}\)",
        ),
        ("vllm", rf"execute_new_{_number('new')}_cached_{_number('cached')}"),
        (
            "sglang",
            rf"step\[(?P<mode>EXTEND){size} toks={_number('toks')}{_sglang_sums('c', _OF_PREFILL)}\]",
        ),
        ("sglang", rf"step\[(?P<mode>DECODE|TARGET_VERIFY|VERIFY){size}{_sglang_sums('g', _OF_DECODE)}\]"),
        ("sglang", rf"step\[(?P<mode>MIXED){size}{_sglang_both()}\]"),
        ("sglang", rf"step\[(?P<mode>SPLIT_PREFILL){size}\]"),
        ("sglang", rf"step\[(?P<mode>DRAFT_EXTEND_V2){size}{_sglang_sums('c', _OF_PREFILL)}\]"),
        ("sglang", rf"step\[(?P<mode>DRAFT_LOOP) raw_bs={_number('requests')}{size} topk={_N}\]"),
        ("sglang", rf"step\[(?P<mode>DRAFT_EXTEND|IDLE|PREBUILT|DLLM_EXTEND|DUMMY_FIRST){size}\]"),
        ("xdit", rf"(?:iteration_{_N}_)?execute_diffusion_{_number('batch_size')}_{_N}x{_N}"),
    )


_OTHERS = ("toks", "new", "cached")
_PREFILL_MODES, _DECODE_MODES = ("EXTEND", "SPLIT_PREFILL"), ("DECODE", "TARGET_VERIFY", "VERIFY")
_NUMBER_OF_STEP = r" #[0-9]+$"
_MAY_BE_LABEL = r"^(?:execute_|iteration_|step\[)"


def engine_labels(names: pl.Series) -> pl.DataFrame:
    distinct = names.alias("name").to_frame().select(_col("name").unique().drop_nulls())
    distinct = distinct.with_columns(text=_col("name").cast(pl.String)).filter(_col("text").str.contains(_MAY_BE_LABEL))
    labels = pl.concat(_read(distinct, engine, form) for engine, form in _forms())
    return _work_out(labels).select(COLUMNS).sort("name")


def labels_of_steps(steps: pl.Series) -> pl.DataFrame:
    """Returns the columns of `engine_labels` without the name, one row for each step. First removes the number that
    follows a step's name if several steps have the same name."""
    names = steps.cast(pl.String).str.replace(_NUMBER_OF_STEP, "").alias("name").to_frame()
    labels = engine_labels(names["name"])
    return names.join(labels, on="name", how="left", maintain_order="left").drop("name")


def alike(steps: pl.Series) -> pl.Series:
    """Returns equal texts for steps with equal phase, tokens, requests and batch size. All steps without a label get
    the same text."""
    work = [_col(column).cast(pl.String).fill_null("") for column in ("phase", "tokens", "requests", "batch_size")]
    return labels_of_steps(steps).select(pl.concat_str(*work, separator=" ").alias("alike"))["alike"]


def _read(names: pl.DataFrame, engine: str, form: str) -> pl.DataFrame:
    """Returns the names that have this form, with the values in them."""
    whole = rf"^{form}$"
    rows = names.filter(_col("text").str.contains(whole))
    rows = rows.with_columns(_col("text").str.extract_groups(whole)).unnest("text")
    numbers = {at: _col(at).cast(pl.Int64) if at in rows.columns else _null(at) for at in (*COUNTS, *_OTHERS)}
    mode = _col("mode") if "mode" in rows.columns else pl.lit(None, dtype=pl.String)
    return rows.select("name", *numbers.values(), mode=mode, engine=pl.lit(engine, dtype=ENGINES))


def _null(column: str) -> pl.Expr:
    return pl.lit(None, dtype=pl.Int64).alias(column)


def _work_out(labels: pl.DataFrame) -> pl.DataFrame:
    """Fills the columns that follow from other values of a label, such as tokens and phase."""
    is_sglang, mode = _col("engine") == "sglang", _col("mode")
    is_prefill = mode.is_in(_PREFILL_MODES) | (_col("cached") == 0)
    is_decode = mode.is_in(_DECODE_MODES)
    known = labels.with_columns(
        requests=pl.coalesce(
            "requests",
            pl.when(is_sglang).then("batch_size"),
            _col("new") + _col("cached"),
            _col("prefill_requests") + _col("decode_requests"),
        ),
        prefill_sq=pl.coalesce("prefill_sq", "toks"),
        decode_sq=pl.coalesce("decode_sq", pl.when(mode == "DECODE").then("batch_size")),
    ).with_columns(
        prefill_requests=pl.when(is_prefill).then("requests").when(is_decode).then(0).otherwise("prefill_requests"),
        decode_requests=pl.when(is_decode).then("requests").when(is_prefill).then(0).otherwise("decode_requests"),
    )
    no_prefill = _col("prefill_requests") == 0
    no_decode = (_col("decode_requests") == 0) | (mode == "DRAFT_EXTEND_V2").fill_null(value=False)
    return known.with_columns(
        *(pl.when(no_prefill).then(_col(at).fill_null(0)).otherwise(at).alias(at) for at in _OF_PREFILL),
        *(pl.when(no_decode).then(_col(at).fill_null(0)).otherwise(at).alias(at) for at in _OF_DECODE),
    ).with_columns(tokens=_col("prefill_sq") + _col("decode_sq"), phase=_phase(mode))


def _phase(mode: pl.Expr) -> pl.Expr:
    prefill, decode = _col("prefill_requests") > 0, _col("decode_requests") > 0
    phase = pl.when((mode == "MIXED") | (prefill & decode)).then(pl.lit("mixed")).when(prefill).then(pl.lit("prefill"))
    phase = phase.when(decode).then(pl.lit("decode")).when(_col("engine") == "xdit").then(pl.lit("diffusion"))
    return phase.otherwise(None).cast(pl.Enum(SERVING_PHASES))
