"""Findings about devices: kernels, tensor cores, copies, collectives."""

from __future__ import annotations

import pytest

from findings.made import FIRST, STEP, Case, Made, case_tests, each


def blocks(count: int, multiprocessors: int | None = 100) -> Made:
    return Made().device(multiprocessors=multiprocessors).work("kernel", 0, 1000, grid_x=count, grid_y=1, grid_z=1)


def product(
    kernel: str,
    types: str,
    capability: str = "8.0",
    sizes: str = "[[64, 1024], [1024, 64]]",
    op: str = "aten::mm",
    device: str | None = None,
    waits: bool = True,
) -> Made:
    """A run with a kernel that takes 980 of each step, in an op; the host waits for it if `waits`."""
    made = Made().device(capability=capability, name=device).range(op, 0, 12, input_types=types, sizes=sizes)
    made.launch(1, kernel, 20, 980)
    return made.call("cudaStreamSynchronize", 13, 987) if waits else made


SINGLE, HALF = '["float", "float"]', '["c10::Half", "c10::Half"]'
SGEMM, HGEMM, H884 = "ampere_sgemm_128x64_nn", "volta_hgemm_128x64_nn", "volta_h884gemm_128x64_nn"
TENSILE = "Cijk_Ailk_Bljk_{}_MT64x64x16_SN_K1"
# A kernel of 980 in each step is 9800 of 10,000; half of it is at stake.
PRODUCT = {"ns": 9800, "ns_share": 0.98, "kernels": 10}


def hidden(at: int, length: int) -> Made:
    """Computing until 800, a collective from `at` on."""
    return Made().work("gemm", 0, 800, stream_id=1).work("ncclDevKernel_AllReduce", at, length, stream_id=2)


def gloo(length: int) -> Made:
    return Made().launch(900, "gemm", 910, 90).range("gloo:all_reduce", 100, length, kind="user")


def copies(down: int = 4096, up: int = 4096, to: str = "pageable") -> Made:
    """Down from 100 to 150, up from 250 to 300; kernels before and after."""
    made = Made().work("a", 0, 100).work("b", 300, 700)
    made.work("down", 100, 50, kind="memcpy", copy_from="device", copy_to=to, bytes=down)
    return made.work("up", 250, 50, kind="memcpy", copy_from=to, copy_to="device", bytes=up)


def fallback(length: int, inside: str = "aten::_to_cpu") -> Made:
    made = Made().range("aten::weird", 100, length, module="head").range(inside, 101, 5)
    return made.launch(900, "gemm", 910, 90)


CASES = [
    Case(
        "few-blocks",
        lambda: blocks(50),
        5000,  # half of the device in all of the time
        0.5,
        {"lost_ns": 5000, "kernels": 10, "ns": 10_000, "blocks": 50, "multiprocessors": 100},
        {
            "2% of the device": lambda: blocks(98),
            "enough blocks": lambda: blocks(100),
            "nobody knows the device": lambda: blocks(1, None),
        },
        steps=FIRST,
        ranges=each(0, 1000),
        words={"kernel": "kernel"},
    ),
    Case(
        "dominating-kernel",
        lambda: Made().work("big", 0, 600).work("small", 600, 400),
        None,
        None,
        {"ns": 6000, "kernel_share": 0.6, "count": 10},
        {
            "40%": lambda: Made().work("a", 0, 400).work("b", 400, 300).work("c", 700, 300),
            "of one template": lambda: (
                Made()
                .work("elementwise", 0, 400, full_name="elementwise<add>")
                .work("elementwise", 400, 400, full_name="elementwise<mul>")
                .work("gemm", 800, 200)
            ),
            "there is no other": lambda: Made().work("big", 0, 600),
            "a collective": lambda: (
                Made().work("nccl", 0, 600).work("a", 600, 199).work("b", 800, 199).work("c", 999, 1)
            ),
        },
        ranges=each(0, 600),
        words={"kernel": "big"},
    ),
    Case(
        "tf32-off",
        lambda: product(SGEMM, SINGLE),
        4900,
        0.49,
        PRODUCT,
        {
            "on tensor cores": lambda: product("ampere_s1688gemm_128x64_nn", SINGLE),
            "the device has none for it": lambda: product("volta_sgemm_128x64_nn", SINGLE, "7.0"),
            "of doubles": lambda: product("cutlass_dgemm_simt", '["double", "double"]'),
            "no product": lambda: product("elementwise_kernel", SINGLE),
            "with a vector": lambda: product(SGEMM, SINGLE, sizes="[[1, 1024], [1024, 64]]"),
            "of few rows": lambda: product(SGEMM, SINGLE, sizes="[[15, 1024], [1024, 64]]"),
            "with a vector, by the kernel": lambda: product("void gemvx::kernel<float, sgemm>", SINGLE),
            "another device of that number": lambda: product(SGEMM, SINGLE, "9.0", device="AMD Instinct MI250X"),
            "a device without any": lambda: product(HGEMM, SINGLE, "7.5", device="NVIDIA GeForce GTX 1660"),
            "the host set the pace": lambda: product(SGEMM, SINGLE, waits=False),
        },
        ops=("aten::mm",),
        steps=FIRST,
        ranges=each(20, 980),
        words={"kernel": SGEMM},
    ),
    Case(
        "no-tensor-cores",
        lambda: product(HGEMM, HALF),
        4900,
        0.49,
        PRODUCT,
        {
            "on tensor cores": lambda: product(H884, HALF),
            "the device has none": lambda: product(HGEMM, HALF, "6.1"),
            "another device has none": lambda: product(TENSILE.format("HHS_BH"), HALF, "9.0", device="Radeon VII"),
            "of floats": lambda: product(SGEMM, SINGLE),
        },
        ops=("aten::mm",),
        steps=FIRST,
        ranges=each(20, 980),
        words={"kernel": HGEMM},
    ),
    Case(
        "odd-sizes",
        lambda: product(H884, HALF, sizes="[[64, 1023], [1023, 64]]"),
        4900,
        0.49,
        PRODUCT,
        {
            "8 divides them": lambda: product(H884, HALF),
            "a vector": lambda: product(H884, HALF, sizes="[[1, 1024], [1024, 64]]"),
            "of floats": lambda: product(SGEMM, SINGLE, sizes="[[64, 1023], [1023, 64]]"),
            "not known": lambda: product(H884, HALF, sizes="[[64, 10"),
            # Height and width of an image are not sizes of a matrix.
            "channels fit": lambda: product(H884, HALF, sizes="[[8, 16, 9, 9], [64, 16, 3, 3]]", op="aten::conv2d"),
        },
        ops=("aten::mm",),
        ranges=each(20, 980),
        words={"sizes": "[[64, 1023], [1023, 64]]"},
    ),
    Case(
        "communication-or-waiting",
        lambda: hidden(700, 300),
        2000,  # from 800 to 1000
        0.2,
        {"exposed_ns": 2000, "exposed_share": 0.2, "waiting_ns": 0, "communicating_ns": 3000, "collectives": 10},
        {"9.9%": lambda: hidden(700, 199), "hidden": lambda: hidden(300, 500)},
        ops=("ncclDevKernel_AllReduce",),
        steps=FIRST,
        ranges=each(700, 300),
        words={"why": "not all of their files are here"},
    ),
    Case(
        "gloo-on-devices",
        lambda: gloo(40),
        400,
        0.04,
        {"ns": 400, "ns_share": 0.04, "collectives": 10},
        {"1.9%": lambda: gloo(19), "on the host": lambda: Made().range("gloo:all_reduce", 100, 300)},
        ops=("gloo:all_reduce",),
        ranges=each(100, 40),
    ),
    Case(
        "there-and-back",
        copies,
        2000,  # from 100 to 300
        0.2,
        {"trips": 10, "bytes": 40_960, "lost_ns": 2000},
        {
            "another size": lambda: copies(up=8192),
            "a value": lambda: copies(4095, 4095),
            "to another device": lambda: copies(to="device"),
            "it computed meanwhile": lambda: copies().work("other", 100, 190, stream_id=9),
            "in the next step": lambda: (
                Made()
                .work("down", 900, 50, [3], kind="memcpy", copy_from="device", copy_to="pinned", bytes=4096)
                .work("up", 700, 50, [4], kind="memcpy", copy_from="pinned", copy_to="device", bytes=4096)
            ),
        },
        steps=FIRST,
        ranges=each(100, 200),
    ),
    Case(
        "cpu-fallback",
        lambda: fallback(100),
        1000,
        0.1,
        {"ns": 1000, "ns_share": 0.1, "calls": 10},
        {"0.9%": lambda: fallback(9), "another op": lambda: fallback(100, "aten::to")},
        ops=("aten::weird",),
        steps=FIRST,
        ranges=each(100, 100),
        words={"op": "aten::weird"},
    ),
]


test_it_fires, test_it_is_silent = case_tests(CASES)


def test_of_two_devices_of_a_process_the_mean_counts() -> None:
    # Exposed for 200 on one device and not on the other: 100 in each step.
    found = hidden(700, 300).work("gemm", 0, 1000, device_id=1).findings()
    assert found["communication-or-waiting"].evidence.at_stake_ns == 10 * 100


def test_ranks_that_lose_time_together_lose_it_once() -> None:
    made = Made(ranks=(0, 1)).work("gemm", 0, 800).work("ncclDevKernel_AllReduce", 800, 200)
    found = made.findings()["exposed-communication"]
    assert (found.evidence.at_stake_ns, found.share, found.evidence.ranks) == (10 * 200, 0.2, (0, 1))


def test_one_rank_that_is_odd_is_named() -> None:
    made = Made(ranks=(0, 1, 2)).work("gemm", 0, 400, rank=1).work("ncclDevKernel_AllReduce", 400, 600, rank=1)
    made.work("gemm", 0, STEP, rank=0).work("gemm", 0, STEP, rank=2)
    rows = [row for row in made.rows["work"] if row["rank"] == 1]
    assert made.findings()["communication-or-waiting"].evidence.ranks == (1,)
    assert rows


def test_what_has_no_name_is_said_to_have_none() -> None:
    # No kernel that nobody can name dominates; that kernels are small, and that ops fall back, is said all the same.
    made = Made().device(multiprocessors=100).work(None, 0, 600, grid_x=1, grid_y=1, grid_z=1).work("small", 600, 400)
    found = made.findings()
    assert "dominating-kernel" not in found
    assert found["few-blocks"].evidence.words == {"kernel": "one without a name"}
    made = Made().range(None, 0, 500).range("aten::_to_cpu", 10, 5).launch(900, "gemm", 910, 90)
    assert made.findings()["cpu-fallback"].evidence.words == {"op": "one without a name"}


def test_channels_of_a_convolution_are_its_sizes() -> None:
    made = product(H884, HALF, sizes="[[8, 3, 64, 64], [64, 3, 8, 8], [64]]", op="aten::conv2d")
    assert made.findings()["odd-sizes"].evidence.words == {"sizes": "[[8, 3, 64, 64], [64, 3, 8, 8], [64]]"}


def test_there_and_back_in_a_run_without_steps() -> None:
    made = Made(steps=0).work("a", 0, 100, [0]).work("b", 300, 700, [0])
    made.work("down", 100, 50, [0], kind="memcpy", copy_from="device", copy_to="pageable", bytes=4096)
    made.work("up", 250, 50, [0], kind="memcpy", copy_from="pageable", copy_to="device", bytes=4096)
    assert made.findings()["there-and-back"].evidence.figures == {"trips": 1, "bytes": 4096, "lost_ns": 200}


@pytest.mark.parametrize(
    ("kernel", "types", "op", "device", "rule"),
    [
        # No op says what is multiplied.
        (SGEMM, None, "Forward", None, "tf32-off"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>", None, "Forward", None, "tf32-off"),
        ("ampere_fp16_sgemm_fp16_128x64_nn", None, "Forward", None, "no-tensor-cores"),
        (TENSILE.format("SB"), None, "aten::mm", "AMD Instinct MI300X", "tf32-off"),
        (TENSILE.format("HHS_BH"), HALF, "aten::mm", "AMD Instinct MI210", "no-tensor-cores"),
        (TENSILE.format("BBS_BH"), None, "linear", "AMD Instinct MI300X", "no-tensor-cores"),
    ],
)
def test_kernels_of_all_makers(kernel: str, types: str, op: str, device: str, rule: str) -> None:
    found = product(kernel, types, op=op, device=device).findings()
    assert [name for name in found if name in ("tf32-off", "no-tensor-cores")] == [rule]
    assert found[rule].evidence.at_stake_ns == 4900


def test_no_more_of_a_product_is_at_stake_than_the_run_would_gain() -> None:
    # The next kernel is launched 90 before the product ends, and then the host waits: half of the product saves no
    # more.
    made = Made().device(capability="8.0").launch(0, SGEMM, 20, 400).launch(320, "gelu", 420, 500)
    made.call("cudaStreamSynchronize", 335, 590)
    assert made.findings()["tf32-off"].evidence.at_stake_ns == 10 * 90
