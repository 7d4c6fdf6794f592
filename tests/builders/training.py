"""A model of a training run, whose figures are known because they were put into it: tests and benches write it as files
of any source (training_files.py) and look whether the answers find what was planted.

    run = training.run(Plan(ranks=8, straggler=(3, 1.5)))
    run.ranges, run.calls, run.work                        rows of all ranks; times in ns

A step loads a batch, copies it to the device, goes forward through the layers, backward through them on autograd's
thread, and lets the optimizer update the parameters. Gradients are summed over the ranks in buckets while the backward
goes on. Physics holds: work begins after its launch and after what its stream did before; a collective ends for all
ranks at once, when the last of them has come; the optimizer waits for it. The host runs ahead of the device, but for no
more than the launches of a step, as a driver's queue is finite: the n-th launch of a step does not return before the
n-th of the step before has begun. The same plan gives the same run, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import NamedTuple

from builders.training_plan import BACKWARD, COMMUNICATION, COMPUTE, MAIN, Call, Plan, Range, Run, Work

BEGIN_NS = 1_000_000_000
LAUNCH_NS, RETURN_TO_BEGIN_NS, BETWEEN_NS = 6_000, 2_000, 1_000
LOADING_NS, OP_NS = 60_000, 33_000  # as slow as Python is with a profiler that records sizes: 7 % less than the device
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
SGEMM = "ampere_sgemm_128x64_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_{}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
# The time of each op on the device, and its kernel; {} is the type.
KERNELS = {
    "aten::addmm": (90_000, "{gemm}"),
    "aten::mm": (95_000, "{gemm}"),
    "aten::gelu": (30_000, "void at::native::vectorized_elementwise_kernel<4, gelu, {type}>(int, gelu)"),
    "aten::gelu_backward": (35_000, "void at::native::vectorized_elementwise_kernel<4, gelu_backward, {type}>(int)"),
    "aten::add": (22_000, "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add, {type}>(int)"),
    "aten::native_layer_norm": (25_000, "void at::native::vectorized_layer_norm_kernel<{type}>(int, {type})"),
    "aten::native_layer_norm_backward": (45_000, "void at::native::layer_norm_grad_input_kernel<{type}>({type})"),
    "aten::_log_softmax": (40_000, "void at::native::softmax_warp_forward<{type}>({type}*)"),
    "aten::_log_softmax_backward_data": (40_000, "void at::native::softmax_warp_backward<{type}>({type}*)"),
}
# The ops that the backward of each op calls.
BACKWARD_OPS = {
    "aten::addmm": ("aten::mm", "aten::mm"),
    "aten::gelu": ("aten::gelu_backward",),
    "aten::add": (),
    "aten::native_layer_norm": ("aten::native_layer_norm_backward",),
    "aten::_log_softmax": ("aten::_log_softmax_backward_data",),
}
FOREACH = (
    "_foreach_add_",
    "_foreach_mul_",
    "_foreach_lerp_",
    "_foreach_addcmul_",
    "_foreach_sqrt",
    "_foreach_addcdiv_",
)
LOOP = ("add_", "mul_", "lerp_", "addcmul_", "sqrt", "addcdiv_")
FOREACH_NS, LOOP_NS, REDUCE_NS = 60_000, 9_000, 150_000
COPY_NS, ITEM_COPY_NS, FALLBACK_NS, COMPILE_NS = 30_000, 2_000, 400_000, 30_000_000
SHORTER = 20  # kernels of a run whose device waits for launches


class Node(NamedTuple):
    """The backward work of a forward op."""

    name: str
    seq: int
    ops: tuple[str, ...]


def run(plan: Plan) -> Run:
    ranks = [_Rank(plan, rank) for rank in range(plan.ranks)]
    for step in range(plan.steps):
        for rank in ranks:
            rank.begin(step)
        _meet(ranks)
        for rank in ranks:
            rank.finish(step)
    for rank in ranks:
        rank.wait("cudaDeviceSynchronize")
    made = [_shifted(rank, plan) for rank in ranks]
    return Run(plan, *([row for part in made for row in part[at]] for at in range(3)))  # type: ignore[arg-type]


def _meet(ranks: list[_Rank]) -> None:
    """Collectives: each rank's begins when its gradients are there, and all end when the last rank's has had its time.
    Who comes early waits in it."""
    for together in zip(*(rank.collectives for rank in ranks), strict=True):
        begins = []
        for rank, one in zip(ranks, together, strict=True):
            begins.append(max(one.ready, rank.free[COMMUNICATION] + BETWEEN_NS))
            rank.begun[one.nth] = begins[-1]
        end = max(begins) + together[0].ns
        for rank, one, begin in zip(ranks, together, begins, strict=True):
            rank.free[COMMUNICATION] = end
            name = ALL_REDUCE.format("f32" if rank.plan.fp32 else "bf16")
            row = Work(rank.rank, begin, end, "kernel", name, COMMUNICATION, one.correlation, 24, 0, None, one.elements)
            rank.work.append(row)
    for rank in ranks:
        rank.collectives.clear()


class _Collective(NamedTuple):
    nth: int  # among the launches of the step
    ready: int
    ns: int
    correlation: int
    elements: int


class _Rank:
    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        # Times and the noise on them are two sequences: what the host does more often must not change the device's.
        self.host, self.device = (Random(f"{plan.seed} {rank} {what}") for what in ("host", "device"))
        self.ranges: list[Range] = []
        self.calls: list[Call] = []
        self.work: list[Work] = []
        self.collectives: list[_Collective] = []
        self.now = BEGIN_NS + int(self.host.random() * 20_000)
        self.free = dict.fromkeys((COMPUTE, COMMUNICATION), 0)
        self.before: list[int] = []  # when the work of the step before began, in the order of its launches
        self.begun: list[int] = []
        self.tid, self.seq, self.number, self.correlation = MAIN, 0, 0, 0
        self.width = 1021 if plan.odd else 1024

    # --- the parts of a step

    def begin(self, step: int) -> None:
        plan = self.plan
        self.before, self.begun = self.begun, []
        self.step_begin = self.now
        with self.range(LOADER, "user"):
            self.pass_(LOADING_NS)
            self.now += plan.slow_loader
        with self.op("aten::to"), self.op("aten::copy_"):
            self.copy(("Pageable" if plan.pageable else "Pinned", "Device"), COPY_NS, 8 << 20)
        with self.range("Optimizer.zero_grad#AdamW.zero_grad", "user"):
            self.pass_(20_000)
        if not plan.stalled_ranks or self.rank in plan.stalled_ranks:
            self.now += plan.stalls.get(step, 0)
        if step in plan.recompiles:
            with self.range("Torch-Compiled Region: 0/1"), self.range("TorchDynamo Cache Lookup"):
                self.pass_(40_000)
            with self.range("_compile.compile_inner (dynamo_timed)", "user"):
                self.pass_(COMPILE_NS)
        nodes: list[Node] = []
        for layer in range(plan.layers):
            with self.range(f"Block_{layer}", "module"):
                nodes += self.layer(layer)
        for _ in range(plan.round_trips):
            with self.op("aten::to"), self.op("aten::copy_"):
                self.copy(("Device", "Pageable"), COPY_NS, 4 << 20)
            with self.op("aten::to"), self.op("aten::copy_"):
                self.copy(("Pageable", "Device"), COPY_NS, 4 << 20)
        for _ in range(plan.fallbacks):
            self.fallback()
        nodes += self.leaf("aten::cross_entropy_loss", "aten::_log_softmax", "LogSoftmaxBackward0")
        self.backward(nodes)

    def finish(self, step: int) -> None:
        plan = self.plan
        # The streams are told to wait for each other; the host does not.
        self.free[COMPUTE] = max(self.free.values())
        with self.range("Optimizer.step#AdamW.step", "user"):
            parameters = range(plan.layers * 4 if plan.loop_optimizer else 1)
            for name in (f"aten::{op}" for _ in parameters for op in (LOOP if plan.loop_optimizer else FOREACH)):
                ns = LOOP_NS if plan.loop_optimizer else FOREACH_NS
                with self.op(name):
                    self.launch(f"void at::native::multi_tensor_apply_kernel<{name[6:]}>(int)", self.time(name, ns))
        if plan.item_per_step:
            with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
                self.copy(("Device", "Pinned"), ITEM_COPY_NS, 4)
                self.wait("cudaStreamSynchronize")
        if not plan.no_steps:
            self.add(self.step_begin, "user", f"ProfilerStep#{step}")
        self.now += 5_000

    def layer(self, layer: int) -> Iterator[Node]:
        for name, outer, inner, node in (
            (f"LayerNorm_{layer}", "aten::layer_norm", "aten::native_layer_norm", "NativeLayerNormBackward0"),
            (f"Linear_{2 * layer}", "aten::linear", "aten::addmm", "AddmmBackward0"),
            (f"GELU_{layer}", "", "aten::gelu", "GeluBackward0"),
            (f"Linear_{2 * layer + 1}", "aten::linear", "aten::addmm", "AddmmBackward0"),
        ):
            with self.range(name, "module"):
                yield from self.leaf(outer, inner, node)
        yield from self.leaf("", "aten::add", "AddBackward0")

    def leaf(self, outer: str, inner: str, node: str) -> list[Node]:
        """An op, in another one or not; and what its backward will be."""
        self.seq += 1
        seq = self.seq
        with self.op(outer, seq) if outer else nullcontext(), self.op(inner, seq):
            self.compute(inner)
        return [Node(node, seq, BACKWARD_OPS[inner])]

    def backward(self, nodes: list[Node]) -> None:
        plan = self.plan
        self.tid = BACKWARD
        every = 1 if plan.small_collectives else max(5 * plan.layers // 2, 1)
        for done, (node, seq, ops) in enumerate(reversed(nodes), 1):
            with self.range(f"autograd::engine::evaluate_function: {node}", seq=seq, is_backward=True):
                with self.range(node, seq=seq, is_backward=True):
                    for name in ops:
                        with self.op(name):
                            self.compute(name)
                if not plan.exposed and (done % every == 0 or done == len(nodes)):
                    self.all_reduce(REDUCE_NS // 15 if plan.small_collectives else REDUCE_NS)
        if plan.exposed:
            self.all_reduce(10 * REDUCE_NS)
        self.tid = MAIN

    def all_reduce(self, ns: int) -> None:
        if self.plan.ranks == 1:
            return
        with self.range("c10d::allreduce_"), self.range("nccl:all_reduce", "user"):
            correlation = self.call("cudaLaunchKernelExC")
            ready = max(self.now + RETURN_TO_BEGIN_NS, self.free[COMPUTE])
            elements = 4096 if ns < REDUCE_NS else 1 << 22
            self.collectives.append(_Collective(len(self.begun), ready, ns, correlation, elements))
            self.begun.append(0)  # until the others have come

    def fallback(self) -> None:
        """An op that the device does not have: its input goes to the host, and its output comes back."""
        with self.op("aten::unique_dim"):
            with self.op("aten::_to_cpu"), self.op("aten::copy_"):
                self.copy(("Device", "Pageable"), COPY_NS, 4 << 20)
            self.pass_(FALLBACK_NS)
            with self.op("aten::copy_"):
                self.copy(("Pageable", "Device"), COPY_NS, 4 << 20)

    # --- what they are made of

    def pass_(self, ns: int) -> None:
        self.now += self.noisy(self.host, ns)

    def noisy(self, random: Random, ns: float) -> int:
        return max(round(ns * (1 + random.gauss(0, self.plan.noise))), 1)

    @contextmanager
    def range(
        self, name: str, kind: str = "op", seq: int | None = None, is_backward: bool = False, sizes: str | None = None
    ) -> Iterator[None]:
        begin = self.now
        self.pass_(OP_NS // 4)
        yield
        self.pass_(OP_NS // 8)
        self.add(begin, kind, name, seq, is_backward, sizes)

    @contextmanager
    def op(self, name: str, seq: int | None = None) -> Iterator[None]:
        self.pass_(OP_NS // 2)
        width = self.width
        sizes = f"[[{width}], [8192, {width}], [{width}, {width}]]" if name == "aten::addmm" else f"[[8192, {width}]]"
        with self.range(name, "op", seq, False, None if self.plan.no_sizes else sizes):
            yield

    def add(
        self,
        begin: int,
        kind: str,
        name: str,
        seq: int | None = None,
        is_backward: bool = False,
        sizes: str | None = None,
    ) -> None:
        type_ = '"float"' if self.plan.fp32 else '"c10::BFloat16"'
        types = sizes and "[" + ", ".join([type_] * (3 if name == "aten::addmm" else 1)) + "]"
        self.number += 1
        row = Range(self.rank, self.tid, begin, self.now, kind, name, seq, is_backward, sizes, types, self.number)
        self.ranges.append(row)

    def time(self, op: str, ns: int) -> int:
        plan = self.plan
        factor = plan.slower.get(op, 1.0) / (SHORTER if plan.launch_bound else 1)
        if plan.straggler and plan.straggler[0] == self.rank:
            factor *= plan.straggler[1]
        factor *= plan.slower_ranks.get(self.rank, 1.0)
        return self.noisy(self.device, ns * factor)

    def compute(self, op: str) -> None:
        ns, name = KERNELS[op]
        gemm = SGEMM if self.plan.fp32 else GEMM
        self.launch(
            name.format(gemm=gemm, type="float" if self.plan.fp32 else "c10::BFloat16"),
            self.time(op, ns),
        )

    def launch(self, name: str, ns: int) -> None:
        if self.plan.no_device:
            self.now += ns
            return
        self.on_device("kernel", name, ns, self.call("cudaLaunchKernel"), 4 if self.plan.few_blocks else 1024)

    def copy(self, sides: tuple[str, str], ns: int, size: int) -> None:
        if self.plan.no_device:
            self.pass_(ns)
            return
        way = "Memcpy " + "to".join("D" if side == "Device" else "H" for side in sides)
        blocks = "Pageable" in sides
        end = self.on_device(
            "memcpy",
            way,
            self.noisy(self.device, ns),
            self.call("cudaMemcpyAsync"),
            0,
            size,
            sides,
        )
        if blocks:
            self.returns(end)

    def call(self, name: str) -> int:
        """A launch: returns its correlation. When the queue is full, it waits."""
        begin, nth = self.now, len(self.begun)
        self.pass_(LAUNCH_NS)
        if nth < len(self.before):
            self.now = max(self.now, self.before[nth])
        self.correlation += 1
        self.calls.append(Call(self.rank, self.tid, begin, self.now, name, self.correlation))
        return self.correlation

    def returns(self, end: int) -> None:
        """The call made last does not return before this time."""
        self.now = max(self.now, end + BETWEEN_NS)
        self.calls[-1] = self.calls[-1]._replace(end=self.now)

    def wait(self, name: str) -> None:
        if self.plan.no_device:
            return
        self.correlation += 1
        self.calls.append(Call(self.rank, self.tid, self.now, self.now + 2_000, name, self.correlation))
        self.now += 2_000
        self.returns(max(self.free.values()))

    def on_device(
        self,
        kind: str,
        name: str,
        ns: int,
        correlation: int,
        blocks: int,
        size: int = 0,
        sides: tuple[str, str] | None = None,
    ) -> int:
        begin = max(self.now + RETURN_TO_BEGIN_NS, self.free[COMPUTE] + BETWEEN_NS)
        self.begun.append(begin)
        self.free[COMPUTE] = begin + ns
        self.work.append(Work(self.rank, begin, begin + ns, kind, name, COMPUTE, correlation, blocks, size, sides, 0))
        return begin + ns


def _shifted(rank: _Rank, plan: Plan) -> tuple[list[Range], list[Call], list[Work]]:
    """In order of time, by the rank's own clock, and without what is not in its file."""
    ns = plan.apart.get(rank.rank, 0)
    first, last = -(2**63), 2**63
    if rank.rank in plan.cut:
        wanted = [f"ProfilerStep#{step}" for step in plan.cut[rank.rank]]
        steps = {row.name: row for row in rank.ranges if row.name in wanted}
        first, last = steps[wanted[0]].start, steps[wanted[1]].end
    calls = [row for row in rank.calls if first <= row.start and row.end <= last]
    known = {row.correlation for row in calls}
    kept = (
        [row for row in rank.ranges if first <= row.start and row.end <= last],
        calls,
        [row for row in rank.work if row.correlation in known],
    )
    return tuple(  # type: ignore[return-value]
        sorted((row._replace(start=row.start + ns, end=row.end + ns) for row in rows), key=lambda row: row.start)
        for rows in kept
    )
