"""Reads the names of ops from the names of kernels that torch.compile made.

    fused_ops("triton_poi_fused_add_native_layer_norm_2") -> FusedOps(ops=("aten::add", "aten::native_layer_norm"),
        is_cut=False)
    extern_op("extern_kernels.mm") -> "aten::mm"

A kernel's name consists of a prefix, the names of the ATen ops that the kernel was made from, and a number, joined with
underscores. The names of ops have no overloads. They contain underscores, too, so only a list of torch's ops shows
where a name ends. Consecutive words outside of that list are taken as one custom op, whose namespace is not known. A
kernel's name without a number at its end was cut.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# graph_0_ is the prefix of ranges of C++ kernels. The letters after triton_ are the kind of a Triton kernel, such as
# poi, per, red, tem or for.
_FUSED = re.compile(r"(?:graph_\d+_)?(?:triton_[a-z]{2,6}|cpp|cuda|cutlass|cutedsl|rocm|pallas|mps)_fused(?:_(.*))?")
_NUMBER = re.compile(r"(?:^|_)\d+$")
_OP = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?")
_GRAPH = re.compile(r"^graph_(\d+)_(?=(?:cpp|triton)_)")
LONGEST = 4_096  # kernel names are cut to this many characters; real ones are shorter
_MOST_WORDS = 9  # maximum number of words in the name of an op of torch; underscores separate words


class FusedOps(NamedTuple):
    ops: tuple[str, ...]
    is_cut: bool


@lru_cache(65_536)
def fused_ops(kernel: str) -> FusedOps | None:
    """Returns the ops in a kernel's name, or None if torch.compile did not make the name."""
    match = _FUSED.fullmatch(kernel[:LONGEST])
    if match is None:
        return None
    text = match[1] or ""
    number = _NUMBER.search(text)
    is_cut = number is None or len(kernel) > LONGEST
    words = (text if number is None else text[: number.start()]).split("_")
    ops = _ops(words) if words != [""] else []
    if is_cut and ops and ops[-1] not in _NAMES:
        ops.pop()  # the op's name was cut, too
    return FusedOps(tuple(f"aten::{op}" if _is_known(op) else op for op in dict.fromkeys(ops)), is_cut)


def without_graph(name: str) -> tuple[str, int | None]:
    """Splits the name of a range into the name of a kernel and the number of the kernel's graph. The number is None if
    the name of the range does not contain it."""
    match = _GRAPH.match(name[:LONGEST])
    return (name, None) if match is None else (name[match.end() :], int(match[1]))


def op_of(function: str) -> str:
    """Returns the name of an op as traces have it: aten::mm for torch.ops.aten.mm.default. Other names are
    unchanged."""
    match = _OP.fullmatch(function)
    return function if match is None else f"{match[1]}::{match[2]}"


def extern_op(kernel: str) -> str | None:
    """Returns the op that an extern kernel runs: aten::mm for extern_kernels.mm. Returns None for other kernels."""
    if kernel.startswith("extern_kernels."):
        return f"aten::{kernel.removeprefix('extern_kernels.')}"
    if kernel.startswith("aoti_torch_"):  # such as aoti_torch_cuda_mm_out in programs that were compiled ahead of time
        name = kernel.removeprefix("aoti_torch_").partition("_")[2]
        return f"aten::{name.removesuffix('_out')}" if name else None
    if kernel.startswith("aten."):
        return op_of(f"torch.ops.{kernel}")
    op = op_of(kernel)
    return op if op != kernel else None


def _ops(words: list[str]) -> list[str]:
    """Splits the words into names of ops, with as few unknown words as possible. Of several such splits, chooses the
    one with the fewest names."""
    count = len(words)
    best: list[tuple[int, int, int]] = [
        (0, 0, 0)
    ]  # best[n] is the best split of the first n words: its unknown words, its names, and the words of its last name
    for end in range(1, count + 1):
        unknown, names, _ = best[end - 1]
        choice = (unknown + 1, names + 1, 0)
        for length in range(1, min(_MOST_WORDS, end) + 1):
            if _is_known("_".join(words[end - length : end])):
                unknown, names, _ = best[end - length]
                choice = min(choice, (unknown, names + 1, length), key=lambda one: one[:2])
        best.append(choice)
    ops: list[str] = []
    strange: list[str] = []
    end = count
    while end:
        length = best[end][2]
        if length == 0:
            strange.append(words[end - 1])
            end -= 1
            continue
        _end_run(strange, ops)
        ops.append("_".join(words[end - length : end]))
        end -= length
    _end_run(strange, ops)
    return ops[::-1]


def _end_run(strange: list[str], ops: list[str]) -> None:
    if name := "_".join(reversed(strange)).strip("_"):
        ops.append(name)
    strange.clear()


def _is_known(name: str) -> bool:
    return name in _NAMES or (name.endswith("_") and name[:-1] in _NAMES)  # copy_ is the in-place variant of copy


# Names of torch's ops, without namespaces and overloads.
_NAMES = frozenset(
    """
t abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint alias all allclose amax amin aminmax
angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere asin asinh atan
atan2 atanh baddbmm bernoulli bilinear bincount binomial bmm bucketize cat cauchy cbrt cdist ceil celu chalf
cholesky chunk clamp clear clip clone coalesce col2im collapse combinations complex concat concatenate conj
contiguous conv1d conv2d conv3d convolution copy copysign corrcoef cos cosh count cov cpu cross cuda cummax cummin
cumprod cumsum data deg2rad det detach diag diagflat diagonal dict diff digamma dim dist div divide dot dropout
dsplit dstack einsum elu embedding empty eq equal erf erfc erfcx erfinv exp exp2 expand expm1 exponential eye fill
fix flatten flip fliplr flipud floor fma fmax fmin fmod frac frexp full gather gcd ge gelu geometric geqrf ger get
glu grad gradient greater gt hardshrink hardsigmoid hardswish hardtanh heaviside histc histogram histogramdd hsplit
hspmm hstack hypot i0 igamma igammac im2col imag index indices inner inverse iota isclose isfinite isin isinf isnan
isneginf isposinf isreal istft item items keys kron kthvalue lcm ldexp le len lerp less lgamma lift linear linspace
log log10 log1p log2 logaddexp logaddexp2 logcumsumexp logdet logit logspace logsumexp lt matmul max maximum mean
median meshgrid min minimum mish mm mode moveaxis movedim msort mul multinomial multiply mv mvlgamma nanmean
nanmedian nanquantile nansum narrow ndtri ne neg negative nextafter nonzero norm normal numel ones orgqr ormqr outer
pad pdist permute pinverse poisson polar polygamma pop popitem positive pow prelu prod put qr qscheme quantile
rad2deg rand randint randn random randperm range ravel real reciprocal relu relu6 remainder remove renorm repeat
reshape resize rev roll rot90 round rrelu rsqrt rsub scatter searchsorted select selu set setdefault sgn sigmoid
sign signbit silu sin sinc sinh size slice slogdet smm softmax softplus softshrink sort sorted split sqrt square
squeeze sspaddmm stack std stft stride sub subtract sum svd swapaxes swapdims take tan tanh tensor tensordot
threshold tile to topk trace transpose trapezoid trapz tril triu trunc unbind unflatten unfold uniform unsqueeze
update values vander var vdot view vsplit vstack where xlogy zero zeros zeta
_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _add_batch_dim
_add_relu _addmm_activation _aminmax _autocast_to_full_precision _autocast_to_reduced_precision
_batch_norm_impl_index _batch_norm_impl_index_backward _batch_norm_with_update _batch_norm_with_update_functional
_cdist_backward _cdist_forward _cholesky_solve_helper _chunk_cat _coalesce _coalesced _compute_linear_combination
_conj _conj_copy _conj_physical _conv_depthwise2d _convolution _convolution_mode _copy_from _copy_from_and_resize
_ctc_loss _ctc_loss_backward _cummax_helper _cummin_helper _dim_arange _dirichlet_grad _efficient_attention_backward
_efficient_attention_forward _efficientzerotensor _embedding_bag _embedding_bag_backward
_embedding_bag_dense_backward _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward
_embedding_bag_sparse_backward _empty_affine_quantized _euclidean_dist _flash_attention_backward
_flash_attention_forward _flash_attention_forward_no_dropout_inplace _foobar _fused_adagrad _fused_adam _fused_adamw
_fused_dropout _fused_rms_norm _fused_rms_norm_backward _fused_sdp_choice _fused_sgd _gather_sparse_backward
_grad_sum_to_size _grid_sampler_2d_cpu_fallback _grid_sampler_2d_cpu_fallback_backward _grouped_mm
_histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors _index_put_impl _indices
_indices_copy _int_mm _list_to_tensor _local_scalar_dense _log_softmax _log_softmax_backward_data _logcumsumexp
_low_memory_max_pool_offsets_to_indices _low_memory_max_pool_with_offsets _lu_with_info _masked_scale
_masked_softmax _masked_softmax_backward _mixed_dtypes_linear _native_batch_norm_legit
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _native_multi_head_attention _ncf_unsqueeze
_ncf_view _neg_view _neg_view_copy _new_zeros_with_same_feature_meta _nnz _pad_circular _pad_enum _pdist_backward
_pdist_forward _philox_key_fold_in _philox_key_split _philox_normal _philox_uniform _pin_memory _prelu_kernel
_prelu_kernel_backward _remove_batch_dim _reshape_alias _reshape_alias_copy _reshape_copy _resize_output
_safe_softmax _sample_dirichlet _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_fused_attention_overrideable
_scaled_dot_product_fused_attention_overrideable_backward _scaled_grouped_mm _scaled_grouped_mm_v2 _scaled_mm
_scaled_mm_v2 _segment_reduce_backward _set_item _shape_as_tensor _sink_tokens _sobol_engine_draw _softmax
_softmax_backward_data _spdiags _stack _standard_gamma _standard_gamma_grad _tensor_to_list _thnn_fused_gru_cell
_thnn_fused_gru_cell_backward _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward
_thnn_fused_lstm_cell_backward_impl _to_copy _to_cpu _to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr
_to_sparse_csc _to_sparse_csr _to_sparse_semi_structured _transformer_encoder_layer_fwd _trilinear
_triton_multi_head_attention _triton_scaled_dot_attention _unique _unique2 _unpack_dual _unsafe_index
_unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view _upsample_bicubic2d_aa
_upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_lanczos2d_aa
_upsample_lanczos2d_aa_backward _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
_upsample_nearest_exact2d _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
_upsample_nearest_exact3d_backward _values _values_copy _weight_norm _weight_norm_differentiable_backward
_weight_norm_interface _weight_norm_interface_backward adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
adaptive_avg_pool3d_backward adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool2d_backward
adaptive_max_pool3d adaptive_max_pool3d_backward affine_grid_generator affine_grid_generator_backward alias_copy
all_gather_into_tensor all_reduce all_to_all_single alpha_dropout as_strided as_strided_copy as_strided_scatter
as_tensor atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
bartlett_window batch_norm batch_norm_backward batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats bessel_i0
bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 binary_cross_entropy binary_cross_entropy_backward
binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor blackman_window block_diag broadcast_in_dim broadcast_tensors broadcast_to cartesian_prod ccol_indices
ccol_indices_copy chain_matmul channel_shuffle cholesky_inverse cholesky_solve clamp_max clamp_min col_indices
col_indices_copy collapse_view column_stack conj_physical constant_pad_nd conv_depthwise3d conv_tbc
conv_tbc_backward conv_transpose1d conv_transpose2d conv_transpose3d convert_element_type convolution_backward
convolution_backward_overrideable convolution_overrideable copy_sparse_to_sparse copy_strided copy_to
cosine_embedding_loss cosine_similarity count_nonzero cross_entropy_loss crow_indices crow_indices_copy ctc_loss
cummaxmin_backward cumprod_backward cumulative_trapezoid dense_dim detach_copy device_put diag_embed
diagonal_backward diagonal_copy diagonal_scatter dist_backward element_size elu_backward embedding_backward
embedding_bag embedding_dense_backward embedding_renorm embedding_sparse_backward empty_like empty_permuted
empty_quantized empty_strided erf_inv expand_as expand_copy feature_alpha_dropout feature_dropout
flatten_dense_tensors float_power floor_divide fractional_max_pool2d fractional_max_pool2d_backward
fractional_max_pool3d fractional_max_pool3d_backward frobenius_norm from_file full_like
fused_moving_avg_obs_fake_quant gather_backward gelu_backward get_device get_gradients glu_backward greater_equal
grid_sampler grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward group_norm
hamming_window hann_window hardshrink_backward hardsigmoid_backward hardswish_backward hardtanh_backward hash_tensor
hinge_embedding_loss huber_loss huber_loss_backward index_add index_copy index_fill index_put index_reduce
index_select index_select_backward indices_copy inductor_cvt_e8m0_rceil inductor_force_stride_order
inductor_lookup_seed inductor_rand_eager_offset inductor_rand_eager_offsets inductor_randint inductor_random
inductor_seed inductor_seeds infinitely_differentiable_gelu_backward instance_norm int_repr kaiser_window kl_div
l1_loss layer_norm leaky_relu leaky_relu_backward less_equal lift_fresh lift_fresh_copy linalg_vector_norm
linear_backward log_normal log_sigmoid log_sigmoid_backward log_sigmoid_forward log_softmax logical_and logical_not
logical_or logical_xor logit_backward lu_solve lu_unpack margin_ranking_loss masked_fill masked_scatter
masked_scatter_backward masked_select masked_select_backward matmul_backward matrix_exp matrix_exp_backward
matrix_power max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_backward max_pool2d_with_indices
max_pool2d_with_indices_backward max_pool3d max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d
max_unpool3d mish_backward mps_convolution_backward mps_convolution_transpose_backward mse_loss mse_loss_backward
multi_margin_loss multi_margin_loss_backward multilabel_margin_loss multilabel_margin_loss_backward
multilabel_margin_loss_forward nan_to_num narrow_copy native_batch_norm native_batch_norm_backward
native_channel_shuffle native_dropout native_dropout_backward native_group_norm native_group_norm_backward
native_layer_norm native_layer_norm_backward native_norm nested_to_padded_tensor new_empty new_empty_strided
new_full new_ones new_zeros nll_loss nll_loss2d nll_loss2d_backward nll_loss2d_forward nll_loss_backward
nll_loss_forward nll_loss_nd nonzero_numpy nonzero_static norm_except_dim normal_functional not_equal nuclear_norm
one_hot ones_like output_nr pad_sequence pairwise_distance permute_copy pin_memory pixel_shuffle pixel_unshuffle
poisson_nll_loss prepare_softmax_online rand_like randint_like randn_like reduce_scatter_tensor reflection_pad1d
reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward
repeat_interleave replication_pad1d replication_pad1d_backward replication_pad2d replication_pad2d_backward
replication_pad3d replication_pad3d_backward reshape_as resize_as resize_as_sparse resolve_conj resolve_neg
result_type rms_norm row_indices row_indices_copy row_stack rrelu_with_noise rrelu_with_noise_backward
rrelu_with_noise_functional scalar_tensor scaled_dot_product_attention scatter_add scatter_reduce segment_reduce
select_backward select_copy select_scatter shift_left shift_right_arithmetic sigmoid_backward silu_backward
slice_backward slice_copy slice_inverse slice_scatter slow_conv3d slow_conv3d_forward slow_conv_dilated2d
slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smooth_l1_loss smooth_l1_loss_backward
soft_margin_loss soft_margin_loss_backward softplus_backward softshrink_backward spherical_bessel_j0 split_copy
split_dim split_with_sizes split_with_sizes_copy squeeze_copy std_mean storage_offset sum_to_size t_copy
take_along_dim tanh_backward tensor_split thnn_conv2d threshold_backward to_dense to_dense_backward to_mkldnn
to_mkldnn_backward to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr trace_backward
transpose_copy triangular_solve tril_indices triplet_margin_loss triu_indices true_divide type_as unbind_copy
unflatten_dense_tensors unfold_backward unfold_copy unique_consecutive unique_dim unique_dim_consecutive
unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze_copy upsample_bicubic2d upsample_bicubic2d_backward
upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d upsample_linear1d_backward upsample_nearest1d
upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d
upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward value_selecting_reduction_backward
values_copy var_mean view_as view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy view_of
view_of_dtype wait_tensor xor_sum zeros_like
""".split()
)
