"""Attention against torch's own formulas, and what a mask hides against a mask that is made."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import flop_registry  # noqa: E402

from analysis.schemas import Named, Tensor, arguments_of, call, cost_of  # noqa: E402
from opspan.analysis.attention import Mask, pairs  # noqa: E402
from opspan.analysis.formulas import RULES  # noqa: E402
from opspan.analysis.op_cost import cost  # noqa: E402

BY_TORCH = {str(op).replace(".", "::"): formula for op, formula in flop_registry.items()}
SDPA = "aten::_scaled_dot_product_"
KINDS = ("flash", "efficient", "cudnn")
small = st.integers(1, 6)
sides = st.one_of(st.none(), st.integers(0, 8))
# By their names in the schemas of all of these ops.
QUERY = ("query", "q")
NAMES = {
    "causal": ("is_causal", "causal"),
    "left": ("window_size_left",),
    "right": ("window_size_right",),
    "ends of queries": ("cum_seq_q", "cu_seqlens_q", "cu_seq_q"),
    "ends of keys": ("cum_seq_k", "cu_seqlens_k", "cu_seq_k"),
    "longest query": ("max_q", "max_seqlen_q"),
    "longest key": ("max_k", "max_seqlen_k"),
    "query": QUERY,
    "key": ("key", "k"),
    "value": ("value", "v"),
}


def named(op: str, overload: str = "", **given_: Any) -> Named:
    names = arguments_of(op, overload)
    found = {}
    for kind, value in given_.items():
        [found_name] = [name for name in NAMES[kind.replace("_", " ")] if name in names]
        found[found_name] = value
    return found


def loops_of_mask(queries: int, keys: int, mask: Mask) -> int:
    shift = keys - queries if mask.ends_meet else 0
    count = 0
    for query in range(queries):
        for key in range(keys):
            after = mask.left is None or key >= query + shift - mask.left
            before = mask.right is None or key <= query + shift + mask.right
            count += after and before
    return count


@settings(max_examples=300)
@given(st.integers(0, 9), st.integers(0, 9), sides, sides, st.booleans())
def test_pairs_that_a_mask_leaves_by_loops(
    queries: int, keys: int, left: int | None, right: int | None, ends_meet: bool
) -> None:
    mask = Mask(left, right, ends_meet)
    assert pairs(queries, keys, mask) == loops_of_mask(queries, keys, mask)


def test_the_pairs_of_a_huge_mask_take_no_time() -> None:
    many = 10**15
    assert pairs(many, many, Mask(None, 0, ends_meet=True)) == many * (many + 1) // 2


def test_causal_masks_are_torchs() -> None:
    for queries, keys in ((4, 7), (7, 4), (5, 5)):
        ones = torch.ones(queries, keys)
        first = pairs(queries, keys, Mask(None, 0, ends_meet=False))
        assert first == ones.tril().sum()
        last = pairs(queries, keys, Mask(None, 0, ends_meet=True))
        assert last == ones.tril(keys - queries).sum()


@settings(max_examples=60)
@given(small, st.integers(1, 3), st.integers(1, 3), small, small, small, small, st.booleans())
def test_dense_attention_as_torch_counts_it(
    batch: int, key_heads: int, times: int, queries: int, keys: int, width: int, value_width: int, is_causal: bool
) -> None:
    heads = key_heads * times
    q, k, v = [batch, heads, queries, width], [batch, key_heads, keys, width], [batch, key_heads, keys, value_width]
    out = [batch, heads, queries, value_width]
    seen = loops_of_mask(queries, keys, Mask(None, 0 if is_causal else None, ends_meet=False))
    tensors = {"query": Tensor(q), "key": Tensor(k), "value": Tensor(v)}
    for kind in (*KINDS, "flash_for_cpu", "fused_overrideable", "math_for_mps"):
        one, _, rest = kind.partition("_")
        name = f"{SDPA}{one}_attention" + (f"_{rest}" if rest else "")
        name = f"{SDPA}attention_math_for_mps" if one == "math" else name
        whole = BY_TORCH[f"{SDPA}flash_attention"](q, k, v)
        found = cost_of(name, named(name, **tensors, causal=is_causal))
        assert (found.flops, found.masked) == (whole, whole - whole * seen // (queries * keys)), name
        # Without values of inputs it is not known.
        assert cost_of(name, named(name, **tensors)).masked is None
        if one == "math":
            continue
        backward = f"{name}_backward"
        grad = "grad_out_" if "grad_out_" in arguments_of(backward) else "grad_out"
        whole = BY_TORCH[f"{SDPA}flash_attention_backward"](out, q, k, v)
        given_ = named(backward, **tensors, causal=is_causal) | {grad: Tensor(out)}
        found = cost_of(backward, given_)
        assert (found.flops, found.masked) == (whole, whole - whole * seen // (queries * keys)), backward


def test_a_quantized_overload_says_elsewhere_that_it_is_causal() -> None:
    tensors = {name: Tensor([2, 3, 8, 4]) for name in ("query", "key", "value")}
    scales = {name: Tensor([1]) for name in ("q_descale", "k_descale", "v_descale")}
    name = f"{SDPA}flash_attention"
    for is_causal, hidden in ((True, 28), (False, 0)):
        given_ = named(name, "quantized", **tensors, causal=is_causal) | scales
        assert cost_of(name, given_, overload="quantized").masked == 2 * 2 * 3 * hidden * (4 + 4)
    name = "aten::_flash_attention_forward"
    given_ = named(name, "quantized", **tensors, causal=False, left=1, right=0) | scales
    found = cost_of(name, given_, overload="quantized")
    assert found.masked == 2 * 2 * 8 * (3 * 3 - 5) * (4 + 4)  # eight heads of three tokens


FORWARDS = (
    "aten::_flash_attention_forward",
    "aten::_flash_attention_forward_no_dropout_inplace",
    "aten::_efficient_attention_forward",
    "torch_attn::_varlen_attn",
    "torch_attn::_varlen_attn_out",
    "flash_attn::_flash_attn_varlen_forward",
    "flash_attn_3::fwd",
    "_vllm_fa2_C::varlen_fwd",
    "aiter::fmha_v3_varlen_fwd",
)
BACKWARDS = (
    "aten::_flash_attention_backward",
    "aten::_efficient_attention_backward",
    "aten::_cudnn_attention_backward",
    "torch_attn::_varlen_attn_backward",
    "flash_attn::_flash_attn_varlen_backward",
    "flash_attn_3::bwd",
    "aiter::mha_varlen_bwd",
)


def mask_of(name: str, is_causal: bool) -> Named:
    if "efficient" in name:  # 2: the last query beside the last key
        return {"custom_mask_type": 2 if is_causal else 0}
    windows = {"window_size_left": -1, "window_size_right": -1}
    given_ = {key: value for key, value in windows.items() if key in arguments_of(name)}
    if name.startswith("aten::"):
        given_ = {}
    return named(name, causal=is_causal) | given_


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FORWARDS + BACKWARDS),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_packed_sequences_as_torch_counts_them(
    name: str, lengths: list[tuple[int, int]], are_equal: bool, is_causal: bool
) -> None:
    if are_equal:
        lengths = lengths[:1] * len(lengths)
    queries, keys = (sum(one) for one in zip(*lengths, strict=True))
    extra = [1] if "efficient" in name else []
    shapes = [[*extra, queries, 6, 4], [*extra, keys, 2, 4], [*extra, keys, 2, 3]]
    ends = [torch.tensor([0, *one]).cumsum(0) for one in zip(*lengths, strict=True)]
    longest = [max(one) for one in zip(*lengths, strict=True)]
    q, k, v = (torch.empty(shape, device="meta") for shape in shapes)
    # Torch has one formula for all of them; that of efficient attention takes a dimension more.
    is_backward = name in BACKWARDS
    if is_backward:
        # A gradient is like the queries there: values as wide as keys.
        shapes[2] = shapes[1]
        v = k
        whole = BY_TORCH["aten::_flash_attention_backward"](
            *(one.reshape(one.shape[-3:]) for one in (q, q, k, v)), None, None, *ends, *longest
        )
    else:
        flat = (one.reshape(one.shape[-3:]) for one in (q, k, v))
        whole = BY_TORCH["aten::_flash_attention_forward"](*flat, *ends, *longest)
    of_ends = Tensor([len(lengths) + 1])
    given_ = named(
        name, query=Tensor(shapes[0]), key=Tensor(shapes[1]), value=Tensor(shapes[2]), ends_of_queries=of_ends,
        ends_of_keys=of_ends, longest_query=longest[0], longest_key=longest[1],
    )  # fmt: skip
    found = cost_of(name, given_ | mask_of(name, is_causal))
    if len(set(lengths)) > 1:
        # The trace has sums of lengths only, so several lengths are possible: no number, rather than that of the
        # longest.
        assert (found.flops, found.masked) == (None, None)
        return
    mask = Mask(None, 0 if is_causal and "cudnn" not in name else None, ends_meet=True)
    mask = Mask(None, 0, ends_meet=False) if is_causal and "cudnn" in name else mask
    seen = loops_of_mask(*lengths[0], mask)
    assert (found.flops, found.masked) == (whole, whole - whole * seen // (lengths[0][0] * lengths[0][1]))


@settings(max_examples=60)
@given(
    st.sampled_from(
        (
            "aten::_flash_attention_forward",
            "flash_attn::_flash_attn_forward",
            "flash_attn_3::fwd",
            "aiter::mha_fwd",
            "aten::_flash_attention_backward",
            "flash_attn::_flash_attn_backward",
            "flash_attn_3::bwd",
            "aiter::mha_bwd",
        )
    ),
    small,
    small,
    st.booleans(),
    st.integers(-1, 4),
    st.integers(-1, 4),
)
def test_windows_by_loops(name: str, queries: int, keys: int, is_causal: bool, left: int, right: int) -> None:
    q, k = [2, queries, 6, 4], [2, keys, 3, 4]
    given_ = named(name, query=Tensor(q), key=Tensor(k), value=Tensor(k), causal=is_causal, left=left, right=right)
    mask = Mask(None if left < 0 else left, 0 if is_causal else None if right < 0 else right, ends_meet=True)
    # [batch, heads, tokens, width] is the order that torch's formulas take.
    turned = [[2, 6, queries, 4], [2, 3, keys, 4], [2, 3, keys, 4]]
    if name.endswith(("backward", "bwd")):
        whole = BY_TORCH[f"{SDPA}flash_attention_backward"](turned[0], *turned)
    else:
        whole = BY_TORCH[f"{SDPA}flash_attention"](*turned)
    found = cost_of(name, given_)
    hidden = queries * keys - loops_of_mask(queries, keys, mask)
    assert (found.flops, found.masked) == (whole, whole * hidden // (queries * keys))


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("aten::_flash_attention_forward", {"seqused_k": Tensor([1])}),
        ("aten::_flash_attention_forward", {"block_table": Tensor([1, 4])}),
        ("aten::_efficient_attention_forward", {"seqlen_k": Tensor([1])}),
        ("torch_attn::_varlen_attn", {"block_table": Tensor([1, 4])}),
        ("flash_attn::_flash_attn_varlen_forward", {"block_table": Tensor([1, 4])}),
        ("flash_attn_3::fwd", {"page_table": Tensor([1, 4])}),
        ("flash_attn_3::fwd", {"seqused_k": Tensor([1])}),
        ("flash_attn_3::fwd", {"k_new": Tensor([1, 3, 2, 4])}),
        ("_vllm_fa2_C::varlen_fwd", {"seqused_k": Tensor([1])}),
    ],
)
def test_of_a_cache_the_lengths_are_not_known(name: str, of: Named) -> None:
    is_dense = "efficient" in name
    q, k = ([1, 3, 6, 4], [1, 5, 2, 4]) if is_dense else ([3, 6, 4], [5, 2, 4])
    ends = {"ends_of_queries": Tensor([2]), "ends_of_keys": Tensor([2])}
    known = named(name, query=Tensor(q), key=Tensor(k), value=Tensor(k), **ends) | mask_of(name, True)
    assert cost_of(name, known).flops == 2 * 3 * 5 * 6 * 8
    assert cost_of(name, known | of).flops is None


def test_padding_between_sequences_is_not_known() -> None:
    name = "aiter::mha_varlen_fwd"
    packed = [[6, 6, 4], [6, 2, 4], [6, 2, 4], [2], [2]]
    assert cost(RULES[name], [*packed, *[[]] * 20], [None] * 25, None).flops == 2 * 6 * 6 * 6 * 8
    assert cost(RULES[name], [*packed, *[[]] * 15, [2], [2]], [None] * 22, None).flops is None


@pytest.mark.parametrize(
    ("name", "read", "made"),
    [
        ("aten::_efficient_attention_forward", ("query", "key", "value", "bias"), ("query", "logsumexp")),
        (
            "aten::_efficient_attention_backward",
            ("grad_out_", "query", "key", "value", "bias", "out", "logsumexp"),
            ("query", "key", "value"),
        ),
        ("aten::_flash_attention_forward", ("query", "key", "value"), ("query", "logsumexp")),
        (
            "aten::_flash_attention_backward",
            ("grad_out", "query", "key", "value", "out", "logsumexp"),
            ("query", "key", "value"),
        ),
    ],
)
@pytest.mark.parametrize(("type_", "item", "sum_item"), [("c10::Half", 2, 4), ("double", 8, 8)])
def test_bytes_are_those_of_the_tensors(
    name: str, read: tuple[str, ...], made: tuple[str, ...], type_: str, item: int, sum_item: int
) -> None:
    sizes = {"query": [2, 5, 6, 4], "key": [2, 7, 3, 4], "value": [2, 7, 3, 4], "out": [2, 5, 6, 4]}
    sizes |= {"grad_out": sizes["out"], "grad_out_": sizes["out"], "bias": [2, 6, 5, 7], "logsumexp": [2, 6, 5]}
    tensors = {one: Tensor(sizes[one]) for one in read}
    types = dict.fromkeys(read, type_) | {"logsumexp": "double" if sum_item == 8 else "float"}
    expected = sum(prod(sizes[one]) * (sum_item if one == "logsumexp" else item) for one in (*read, *made))
    assert cost_of(name, tensors, types).bytes == expected


def test_keys_in_pages_are_not_known() -> None:
    name = "aiter::fmha_v3_varlen_fwd"
    ends = {"ends_of_queries": Tensor([2]), "ends_of_keys": Tensor([2])}
    given_ = named(name, query=Tensor([3, 6, 4]), key=Tensor([9, 16, 2, 4]), value=Tensor([9, 16, 2, 4]), **ends)
    assert cost_of(name, given_).flops is None


@pytest.mark.parametrize("name", FORWARDS + BACKWARDS)
def test_sizes_that_do_not_fit_are_not_known(name: str) -> None:
    for query, key, value in (
        ([2], [2], [2]),
        ([2, 3, 4, 5], [2, 3, 4, 6], [2, 3, 4, 5]),  # widths
        ([2, 4, 4, 5], [2, 4, 4, 5], [2, 3, 3, 5]),  # tokens
        ([2, 4, 4, 5], [2, 3, 3, 5], [2, 3, 3, 5]),  # heads
        ([2, 3, 4, 5], [1, 3, 4, 5], [1, 3, 4, 5]),  # sequences
    ):
        tensors = {"query": Tensor(query), "key": Tensor(key), "value": Tensor(value)}
        assert cost_of(name, named(name, **tensors)).flops is None, query


def test_packed_sequences_without_ends_are_not_known() -> None:
    tensors = {name: Tensor([3, 4, 5]) for name in ("query", "key", "value")}
    assert cost_of("aten::_flash_attention_forward", tensors).flops is None


def test_the_arguments_are_those_of_the_schema() -> None:
    sizes, values = call("aten::_flash_attention_forward", {"query": Tensor([1, 2]), "is_causal": True})
    assert sizes == [[1, 2], *[[]] * 16]
    assert values == [None] * 8 + [True] + [None] * 8
