"""Facts in the names of kernels. The names are from real traces, shortened where only numbers follow."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.frames import table
from opspan.analysis.busy import use
from opspan.analysis.kernels import with_facts
from opspan.formats.kernel_names import kernel_name

YES = """
void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(T1::Params)
void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_tn_align1>(cutlass_80_tensorop_s1688gemm::Params)
void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_32x5_nhwc_align4>(T1::Params)
void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::warp::MmaTensorOp<cutlass::gemm::GemmShape<8, 8, 4>>>>()
void tcnn::kernel_mlp_fused_backward<(int)64, (int)8, (tcnn::Activation)0, nvcuda::wmma::row_major>(const __half *)
void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64>>(Flash_fwd_params)
sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_g1_tensor16x8x8_execute
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas
ampere_s1688gemm_128x64_tn
nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN
fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext
fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)
bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_sm100f
_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu
void cutlass::device_kernel<gemm::GemmUniversal<gemm::CollectiveMma<MMA_Atom<SM90::MMA_64x128x16_F32BF16BF16_SS>>>>()
_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS5_39MainloopSm90ArrayTmaGmmaWarpSpecializedILi4EEEEEEvT_
"""
MATRIX = """
Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SN_1LDSB1
Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT96x96x128_MI16x16x1_SN_LDSB1
igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8_wt64x16x4_ws1x1_wr2x2
_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34GridwiseE
_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_26FmhaFwdTilePartitioner_HBSEEE
void ck_tile::kentry<1, ck_tile::BatchedGemmKernel<ck_tile::TileGemmShape<ck_tile::sequence<256, 256, 64>>>>()
aiter::fmha_fwd_hd128_bf16_rtz
"""
NO = """
SubTensorOpWithScalar1d
SubTensorOpWithCastTensor1d
void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)
void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<(int)4, (int)256>>>(T1::Params)
sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_execute_kernel__5x_cublas
ampere_sgemm_128x64_tn
ampere_gcgemm_64x64_nt
fmha_cutlassF_f32_aligned_64x64_rf_sm70(PyTorchMemEffAttention::AttentionKernel<float>::Params)
volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int, int, float const*)
void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int, float const*)
Cijk_Ailk_Bljk_SB_MT64x64x8_SN_1LDSB0_VW4
triton_red_fused__to_copy_add_addmm_as_strided_fmha_v3_fwd_mean_mul_neg_pow_rsqrt_stack_view_24
triton_poi_fused_addmm_gelu_view_19
void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>()
void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>, at::detail::Array<char*, 1>>()
void moe::dev::routing::routingIndicesHistogramKernel<moe::dev::routing::routingRenormalize::KernelParams<float>>()
void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 64, 128>>(Flash_bwd_params)
void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::Params<int>>(int)
void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t, cute::tuple<int, int, int>>(int)
void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*, unsigned int*, int, int)
ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
ncclDevKernel_AllReduce_Sum_f32_RING_LL
__amd_rocclr_fillBufferAligned
batched_transpose_16x32_half
Im2d2Col_v2
MIOpenBatchNormFwdTrainSpatial
_layer_norm_fwd_1pass_kernel
_combined_routing_memset
triton_poi_fused_0
"""
UNKNOWN = """
attn_fwd
kernel_unified_attention_2d
fused_moe_kernel
product_kernel
main_45_gpu
triton_tem_fused_addmm_0
_Z32paged_attention_ll4mi_QKV_kernelIDF16_hLN4vllm18Fp8KVCacheDataTypeE1ELi16ELi128EEvPT_
<unnamed>::nvfuser_none_f0_c0_r0_g0(<unnamed>::Tensor<<unnamed>::__half, (int)3, (int)3>, <unnamed>::TensorMap)
void tcnn::kernel_mlp_fused<(int)64, (int)8, __half>(tcnn::Activation, const __half *)
"""
CASES = [(name, True, True) for name in YES.split("\n")[1:-1]]
CASES += [(name, True, False) for name in MATRIX.split("\n")[1:-1]]
CASES += [(name, answer, False) for names, answer in ((NO, False), (UNKNOWN, None)) for name in names.split("\n")[1:-1]]


@pytest.mark.parametrize(("full", "is_on_cores", "rounds"), CASES)
def test_whether_a_kernel_is_on_tensor_cores(full: str, is_on_cores: bool | None, rounds: bool) -> None:
    work = table("work", [{"kind": "kernel", "name": kernel_name(full), "full_name": full}])

    (found,) = with_facts(work).to_dicts()

    assert (found["on_tensor_cores"], found["rounds_to_tf32"]) == (is_on_cores, rounds)


def test_a_source_with_short_names_alone() -> None:
    names = ("ampere_s1688gemm_128x64_tn", "attn_fwd", "vectorized_elementwise_kernel", None)
    work = table("work", [{"kind": "kernel", "name": name} for name in names])
    assert with_facts(work)["on_tensor_cores"].to_list() == [True, None, False, False]


@pytest.mark.parametrize(
    ("full", "name"),
    [
        ("void ns::add<float>(float*)", "add"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)",
            "cutlass_80_simt_sgemm_128x64_8x5_nt_align1",
        ),
        (
            "void cutlass::Kernel<cutlass::gemm::kernel::GemmSplitKParallel<cutlass::gemm::threadblock::MmaMultistage<"
            "cutlass::gemm::GemmShape<(int)64, (int)64, (int)32>, cutlass::A>, cutlass::B>>(T1::Params)",
            "GemmSplitKParallel_64x64x32",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::A>>>(T1::Params)",
            "FlashAttnFwdSm90",
        ),
        (
            "void cutlass::device_kernel<at::enable_3x_kernel_for_sm9x<cutlass::gemm::GemmUniversal<cute::tuple<"
            "int>, cute::TiledMMA<cute::MMA_Atom<SM90::MMA_64x128x16_F32BF16BF16_SS<0>>>>>>(T1::Params)",
            "GemmUniversal_64x128x16_F32BF16BF16",
        ),
        (
            "_ZN7cutlass13device_kernelIN2at4cuda6detail25enable_3x_kernel_for_sm9xINS_4gemm13GemmUniversalINS5_"
            "17GroupProblemShapeINS6_8MMA_AtomIJNS6_4SM9034MMA_64x128x16_F32BF16BF16_SSILNSN_5MajorEEEEE",
            "GemmUniversal_64x128x16_F32BF16BF16",
        ),
        ("void ck_tile::kentry<1, ck_tile::BatchedGemmKernel<ck_tile::A>>(ck_tile::B)", "BatchedGemmKernel"),
        ("_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_1AEEE", "FmhaFwdKernel"),
        ("_ZN2ck6device12_GLOBAL__N_124kernel_gemm_xdl_cshuffleINS_1AEEEvT_", "kernel_gemm_xdl_cshuffle"),
        (
            "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<"
            "thrust::cuda_cub::__fill::functor<double*, double>, long>, long>(long)",
            "__fill::functor",
        ),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(int)", "gemvx::kernel"),
        (
            "std::enable_if<(((8)>(0)))&&c10::A<c10::Half>::exists, void>::type vllm::norm_kernel<c10::Half, 8>(int)",
            "norm_kernel",
        ),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2", "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1"),
        ("Kernel2", "Kernel2"),
        ("void cutlass::Kernel<1>(int)", "Kernel"),
        ("_Z", "_Z"),
        ("_ZN99999999999999x", "_ZN99999999999999x"),
        ("", ""),
    ],
)
def test_short_names_tell_kernels_apart(full: str, name: str) -> None:
    assert kernel_name(full) == name


@pytest.mark.parametrize(("unknown_ns", "share"), [(10, 0.4), (11, None), (0, 0.4)])
def test_no_share_where_a_tenth_is_not_known(unknown_ns: int, share: float | None) -> None:
    figures = {"time_ns": 100, "kernel_ns": 100, "sm_ns": None, "occupancy_ns": None, "with_occupancy_ns": None}
    figures |= {"work_ns": 100, "tensor_core_ns": 40, "unknown_core_ns": unknown_ns}
    rows = table("work", [{"rank": 0, "pid": 1}]).select("rank", "pid")
    rows = rows.with_columns(
        **{name: pl.lit(value, dtype=pl.Float64) for name, value in figures.items()}, step=pl.lit("1")
    )
    assert use(rows)["tensor_core_share"].to_list() == [share]
