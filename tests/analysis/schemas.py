"""Calls of ops as a trace has them, made from the names of their arguments: where these stand, torch's schema says."""

from __future__ import annotations

from typing import Any

import torch

from opspan.analysis.formulas import RULES
from opspan.analysis.op_cost import Cost, cost

Named = dict[str, Any]
# Ops of libraries that are not installed here, as their sources register them.
OF_LIBRARIES = (
    "flash_attn::_flash_attn_forward(Tensor q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool causal, "
    "int window_size_left, int window_size_right, float softcap, Tensor? alibi_slopes, bool return_softmax) -> Tensor",
    "flash_attn::_flash_attn_varlen_forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "int max_seqlen_q, int max_seqlen_k, float dropout_p, float softmax_scale, bool causal, int window_size_left, "
    "int window_size_right, float softcap, Tensor? alibi_slopes, bool return_softmax, Tensor? block_table, "
    "Tensor? leftpad_k, Tensor? seqused_k, bool zero_tensors) -> Tensor",
    "flash_attn::_flash_attn_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
    "Tensor? dq, Tensor? dk, Tensor? dv, float dropout_p, float softmax_scale, bool causal, int window_size_left, "
    "int window_size_right, float softcap, Tensor? alibi_slopes, bool deterministic, Tensor? rng_state) -> Tensor",
    "flash_attn::_flash_attn_varlen_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, "
    "Tensor softmax_lse, Tensor? dq, Tensor? dk, Tensor? dv, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "int max_seqlen_q, int max_seqlen_k, float dropout_p, float softmax_scale, bool causal, int window_size_left, "
    "int window_size_right, float softcap, Tensor? alibi_slopes, bool deterministic, Tensor? rng_state, "
    "bool zero_tensors) -> Tensor",
    "flash_attn_3::fwd(Tensor q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor? out, "
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? seqused_k, "
    "int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, Tensor? kv_batch_idx, Tensor? leftpad_k, "
    "Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, Tensor? q_descale, Tensor? k_descale, "
    "Tensor? v_descale, float? softmax_scale, bool is_causal, int window_size_left, int window_size_right, "
    "int attention_chunk, float softcap, bool is_rotary_interleaved, Tensor? scheduler_metadata, int num_splits, "
    "bool? pack_gqa, int sm_margin) -> Tensor",
    "flash_attn_3::bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor? dq, "
    "Tensor? dk, Tensor? dv, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k, "
    "int? max_seqlen_q, int? max_seqlen_k, float? softmax_scale, bool is_causal, int window_size_left, "
    "int window_size_right, float softcap, bool deterministic, int sm_margin) -> Tensor",
    "_vllm_fa2_C::varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor? out, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "Tensor? seqused_k, Tensor? leftpad_k, Tensor? block_table, Tensor? alibi_slopes, int max_seqlen_q, "
    "int max_seqlen_k, float p_dropout, float softmax_scale, bool zero_tensors, bool is_causal, int window_size_left, "
    "int window_size_right, float softcap, bool return_softmax, Generator? gen) -> Tensor[]",
    "aiter::mha_fwd(Tensor q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool is_causal, "
    "int window_size_left, int window_size_right, bool return_softmax_lse, bool return_dropout_randval, Tensor? out, "
    "Tensor? alibi_slopes, Generator? gen) -> Tensor[]",
    "aiter::mha_bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, float dropout_p, "
    "float softmax_scale, bool is_causal, int window_size_left, int window_size_right, bool deterministic, "
    "Tensor? dq, Tensor? dk, Tensor? dv, Tensor? alibi_slopes, Tensor? rng_state, Generator? gen) -> Tensor[]",
    "aiter::fmha_v3_varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor? cu_seqlens_k, "
    "int max_seqlen_q, int max_seqlen_k, int min_seqlen_q, float dropout_p, float softmax_scale, "
    "float logits_soft_cap, bool zero_tensors, bool is_causal, int window_size_left, int window_size_right, "
    "bool return_softmax_lse, bool return_dropout_randval, Tensor? out, Tensor? block_table) -> Tensor[]",
    "aiter::mha_varlen_bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
    "Tensor cu_seqlens_q, Tensor cu_seqlens_k, int max_seqlen_q, int max_seqlen_k, float dropout_p, "
    "float softmax_scale, bool zero_tensors, bool is_causal, int window_size_left, int window_size_right, "
    "bool deterministic, Tensor? dq, Tensor? dk, Tensor? dv) -> Tensor[]",
    "_C::cutlass_scaled_mm(Tensor out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor? bias) -> ()",
    "_C::cutlass_scaled_fp4_mm(Tensor out, Tensor a, Tensor b, Tensor block_scale_a, Tensor block_scale_b, "
    "Tensor alpha) -> ()",
    "_C::gptq_marlin_gemm(Tensor a, Tensor? c_or_none, Tensor b_q_weight, Tensor? b_bias_or_none, Tensor b_scales, "
    "Tensor? global_scale, Tensor? b_zeros_or_none, Tensor? g_idx_or_none, Tensor? perm_or_none, Tensor workspace, "
    "int b_q_type, SymInt size_m, SymInt size_n, SymInt size_k, bool is_k_full, bool use_atomic_add, "
    "bool use_fp32_reduce, bool is_zp_float) -> Tensor",
    "_C::marlin_gemm(Tensor a, Tensor b_q_weight, Tensor b_scales, Tensor workspace, int size_m, int size_n, "
    "int size_k) -> Tensor",
    "_C::awq_gemm(Tensor _in_feats, Tensor _kernel, Tensor _scaling_factors, Tensor _zeros, int split_k_iters) "
    "-> Tensor",
    "_rocm_C::wvSplitK(Tensor in_a, Tensor in_b, Tensor? in_bias, int CuCount) -> Tensor",
    "aiter::gemm_a8w8_blockscale_ck(Tensor XQ, Tensor WQ, Tensor x_scale, Tensor w_scale, Tensor Out) -> Tensor",
    "aiter::gemm_a4w4(Tensor A, Tensor B, Tensor A_scale, Tensor B_scale, Tensor out, Tensor? bias) -> Tensor",
    "aiter::gemm_a16w16(Tensor A, Tensor B, Tensor? bias) -> Tensor",
    "vllm::rocm_unquantized_gemm(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    "vllm::inplace_fused_experts(Tensor hidden_states, Tensor w1, Tensor w2, Tensor topk_weights, Tensor topk_ids, "
    "str activation, bool apply_router_weight_on_input, bool use_fp8_w8a8, int global_num_experts, "
    "Tensor? expert_map, Tensor? w1_scale, Tensor? w2_scale) -> ()",
)
_SCHEMAS = {schema.name: [schema] for schema in map(torch._C.parse_schema, OF_LIBRARIES)}


class Tensor(list[Any]):
    """The sizes of a tensor, or of those of a list."""


def arguments_of(name: str, overload: str = "") -> list[str]:
    import torch.nn.attention.varlen  # registers its ops

    schemas = _SCHEMAS.get(name) or torch._C._jit_get_schemas_for_operator(name)
    [schema] = [one for one in schemas if one.overload_name == overload]
    return [argument.name for argument in schema.arguments]


def call(name: str, named: Named, overload: str = "") -> tuple[list[Any], list[Any]]:
    """Sizes and values of each argument; those that are not named are given nothing."""
    names = arguments_of(name, overload)
    assert named.keys() <= set(names), (name, named.keys() - set(names))
    given = [named.get(one) for one in names]
    return (
        [list(one) if isinstance(one, Tensor) else [] for one in given],
        [None if isinstance(one, Tensor) else one for one in given],
    )


def cost_of(name: str, named: Named, types: dict[str, str] | None = None, overload: str = "") -> Cost:
    sizes, values = call(name, named, overload)
    known = None
    if types is not None:
        known = [types.get(one, "") for one in arguments_of(name, overload)]
    return cost(RULES[name], sizes, values, known)
