"""Jobs (job.py) as programs for the machine, and what a profiler would have seen of them.

rows = rows_of(job)                       the run
rows = rows_of(job, changed)              `changed(programs)` may change durations before they run
"""

from __future__ import annotations

from collections.abc import Callable

from builders.instructions import (
    Begin,
    Driver,
    End,
    Host,
    Instruction,
    Launch,
    Meet,
    Memory,
    Order,
    Overhead,
    Program,
    Put,
    Sync,
    Take,
    Thread,
)
from builders.job import Job
from builders.job_pieces import PRODUCTS, Pieces
from builders.machine import Rows, run
from builders.training import (
    ALL_REDUCE,
    BACKWARD_OPS,
    FALLBACK_NS,
    FOREACH,
    FOREACH_NS,
    KERNELS,
    LOADER,
    LOOP,
    LOOP_NS,
    OP_NS,
    Node,
)
from builders.training_plan import (
    BACKWARD,
    COMMUNICATION,
    COMPUTE,
    MAIN,
)

LOADER_OF_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
CAST = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda(float)#1}, std::array<char*, 2ul> >(int, {lambda(float)#1}, std::array<char*, 2ul>)"
)
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
SIDE, PREFETCH = 30, 2
SMALL_NS = 45_000  # latency between machines


def rows_of(job: Job, changed: Callable[[list[Program]], None] | None = None) -> Rows:
    programs = programs_of(job)
    if changed:
        changed(programs)
    return run(programs, job.depth)


def programs_of(job: Job) -> list[Program]:
    if job.devices > 1:
        from builders.data_parallel import DataParallel  # a subclass of Writer

        return [DataParallel(job).program()]
    return [Writer(job, rank).program() for rank in range(job.ranks)]


class Writer(Pieces):
    def program(self) -> Program:
        job = self.job
        self.out.append(Host(int(self.host.random() * 20_000)))
        with self.function("train.py(10): main"):
            for step in range(job.steps):
                self.step = step
                self.batch = job.batch(self.rank, step)
                self.whole_step()
            self.out.append(Sync(tag="end"))
            self.pass_(1_000)
        return Program(self.out, [self.worker()] if job.workers else [])

    def worker(self) -> list[Instruction]:
        made: list[Instruction] = []
        for number in range(self.job.steps * self.batches):
            if number >= PREFETCH:
                made.append(Take(f"taken {number - PREFETCH}"))
            noise = self.job.random(self.rank, number, "worker").gauss(1, self.job.noise)
            is_plain = number // self.batches in self.job.plain  # else its step waits for it, as the first one does
            made += [Host(0 if is_plain else round(self.job.load_ns * noise), "load"), Put(f"batch {number}")]
        return made

    @property
    def batches(self) -> int:
        """Batches that a step loads."""
        return 1 if self.job.pipeline else self.job.micro

    # --- parts of a step

    def whole_step(self) -> None:
        job, step = self.job, self.step
        self.section("step")
        if job.has_steps:
            self.out.append(Begin(f"ProfilerStep#{step}", "user"))
        self.extra("begin")
        if step in job.overhead:
            self.out.append(Overhead(job.overhead[step]))
        if job.pipeline:
            self.load(0)
            self.staged()
        else:
            for micro in range(job.micro):
                self.load(micro)
                if job.is_training:
                    self.train(micro)
                else:
                    self.serve()
        if job.is_training:
            self.optimizer()
        self.end_of_step()
        if job.has_steps:
            self.out.append(End())
        self.pass_(5_000)

    def load(self, micro: int) -> None:
        job = self.job
        self.section("load", micro)
        with self.range(LOADER_OF_WORKERS if job.workers else LOADER, "user"):
            if job.workers:
                number = self.step * self.batches + micro
                self.out += [Take(f"batch {number}"), Put(f"taken {number}")]
                self.pass_(20_000)
            else:
                self.pass_exactly(job.load_ns, "load")
            self.extra("load")
        with self.op("aten::to"), self.op("aten::copy_"):
            self.copy(("Pageable" if job.pageable else "Pinned", "Device"), job.batch_ns, 8 << 20, "batch")
        if job.sync_after_load:
            self.out.append(Sync())

    def train(self, micro: int) -> None:
        job = self.job
        if micro == 0:
            self.section("zero_grad")
            with self.range("Optimizer.zero_grad#AdamW.zero_grad", "user"):
                self.pass_(20_000)
        nodes = self.forward(micro)
        self.section("loss", micro)
        nodes += self.leaf("aten::cross_entropy_loss", "aten::_log_softmax", "LogSoftmaxBackward0")
        self.backward(nodes, micro, is_last=micro == job.micro - 1)

    def serve(self) -> None:
        job = self.job
        if job.graphs and (self.step >= max(job.warm_up, 1) or self.step in job.plain):
            self.graph = []
            before = len(self.out)
            self.forward(0)
            del self.out[before:]  # the host's instructions while the graph was captured
            kernels, self.graph = self.graph, None
            self.section("replay")
            with self.range("replay", "user"):
                self.pass_(OP_NS // 2)
                self.out.append(Launch(kernels, self.ns(8_000), "cudaGraphLaunch"))
        else:
            self.forward(0)
        self.section("answer")
        with self.op("aten::to"), self.op("aten::copy_"):
            self.copy(("Device", "Pinned"), self.job.batch_ns, 1 << 20, "answer")
        self.out.append(Sync("cudaStreamSynchronize", self.ns(2_000), (COMPUTE,), "answer"))

    def forward(self, micro: int, is_validation: bool = False) -> list[Node]:
        job = self.job
        nodes: list[Node] = []
        if not is_validation:
            self.section("compile", micro)
            self.compiled(micro)
        for layer in range(job.layers):
            self.section("forward", micro, layer, is_validation)
            with self.range(f"Block_{layer}", "module"):
                if not is_validation and micro == 0:
                    self.extra("layer", layer)
                    self.warm(layer)
                nodes += self.layer(layer, keeps=job.is_training and not is_validation)
                if not is_validation:
                    self.waits_after(layer)
        if not is_validation and micro == 0:
            self.faults()
        return nodes

    def waits_after(self, layer: int) -> None:
        """Values fetched, and other waits, spread over the layers."""
        job = self.job
        self.section("waits", layer)
        for _ in range(layer, job.items, job.layers):
            self.item()
        for _ in range(layer, job.synchronises, job.layers):
            self.out.append(Sync())

    def faults(self) -> None:
        """Adds the faults that happen in the middle of a step."""
        job = self.job
        self.section("faults")
        for _ in range(job.mallocs if self.step else 0):
            with self.op("aten::empty"):
                self.out += [Sync("cudaFree", 100_000, tag="malloc"), Driver("cudaMalloc", job.malloc_ns, "malloc")]
        if self.step in job.module_loads:
            with self.op("aten::topk"):
                self.out += [Driver("cuModuleLoadData", 3_000_000, "module") for _ in range(4)]
        for _ in range(job.round_trips):
            with self.op("aten::to"), self.op("aten::copy_"):
                self.copy(("Device", "Pageable"), job.round_trip_ns, 4 << 20, "trip")
            with self.op("aten::to"), self.op("aten::copy_"):
                self.copy(("Pageable", "Device"), job.round_trip_ns, 4 << 20, "trip")
        for _ in range(job.fallbacks):
            with self.op("aten::unique_dim"):
                with self.op("aten::_to_cpu"), self.op("aten::copy_"):
                    self.copy(("Device", "Pageable"), FALLBACK_NS // 20, 4 << 20, "fallback")
                self.pass_(job.fallback_ns, "fallback")
                with self.op("aten::copy_"):
                    self.copy(("Pageable", "Device"), FALLBACK_NS // 20, 4 << 20, "fallback")

    def compiled(self, micro: int) -> None:
        job = self.job
        if job.lookup_ns:
            for number in range(job.regions):
                with self.range(f"Torch-Compiled Region: {number}/0"), self.range("TorchDynamo Cache Lookup"):
                    self.pass_(job.lookup_ns, "lookup")
        if micro == 0 and self.step in job.compiles:
            with self.range("_compile.compile_inner (dynamo_timed)", "user"):
                self.out.append(Host(job.compiles[self.step], "compile"))

    def warm(self, layer: int) -> None:
        job = self.job
        if self.step >= job.warm_up or self.step in job.plain:
            return
        each = job.warm_up_ns // (2 * job.layers) // (self.step + 1)
        # Not by the speed of the host: loading code takes the driver as long.
        load_ns, memory_ns = (self.ns(each, self.host) for _ in range(2))
        self.out += [Driver("cuModuleLoadData", load_ns, "module"), Driver("cudaMalloc", memory_ns, "malloc")]

    @property
    def kept_bytes(self) -> int:
        """The memory that a layer keeps for its backward."""
        return round((32 << 20) * (1 + self.job.longer * self.step))

    def layer(self, layer: int, keeps: bool = False) -> list[Node]:
        nodes: list[Node] = []
        if self.job.side_ns:
            self.out.append(Order(SIDE, COMPUTE))
            with self.op("aten::copy_"):
                self.copy(("Pinned", "Device"), self.job.side_ns, 64 << 20, "side", SIDE)
            self.out.append(Order(COMPUTE, SIDE))
        for name, outer, inner, node in (
            (f"LayerNorm_{layer}", "aten::layer_norm", "aten::native_layer_norm", "NativeLayerNormBackward0"),
            (f"Linear_{2 * layer}", "aten::linear", "aten::addmm", "AddmmBackward0"),
            (f"GELU_{layer}", "", "aten::gelu", "GeluBackward0"),
            (f"Linear_{2 * layer + 1}", "aten::linear", "aten::addmm", "AddmmBackward0"),
        ):
            with self.range(name, "module"):
                nodes += self.leaf(outer, inner, node)
        return nodes + self.leaf("", "aten::add", "AddBackward0", keeps)

    def leaf(self, outer: str, inner: str, node: str, keeps: bool = False) -> list[Node]:
        self.seq += 1
        seq = self.seq
        if outer:
            with self.op(outer, seq):
                self.cast(inner)
                with self.op(inner, seq):
                    self.compute(inner)
        else:
            with self.op(inner, seq):
                self.out += [Memory(self.kept_bytes)] if keeps else []
                self.compute(inner)
        return [Node(node, seq, BACKWARD_OPS[inner])]

    def cast(self, op: str) -> None:
        """Casts the input of a product, as autocast does."""
        if self.job.casts and op in PRODUCTS:
            with (
                self.op("aten::to"),
                self.op("aten::_to_copy"),
                self.op("aten::copy_", types='"c10::BFloat16", "float"'),
            ):
                self.launch(CAST, KERNELS[op][0] * self.job.casts, "aten::copy_", "cast")

    def backward(self, nodes: list[Node], micro: int, is_last: bool) -> None:
        job = self.job
        self.section("backward", micro)
        self.out.append(Thread(BACKWARD + self.device_number))
        self.extra("backward")
        each = 1 if job.small_collectives else max(len(nodes) // job.buckets, 1)
        for done, (node, seq, ops) in enumerate(reversed(nodes), 1):
            with self.range(f"autograd::engine::evaluate_function: {node}", seq=seq, is_backward=True):
                with self.range(node, seq=seq, is_backward=True):
                    # The first node of a layer that needs what was not kept: the one of its last product.
                    if job.recompute and done % 5 == 3:
                        self.again(job.layers - 1 - done // 5)
                    for name in ops:
                        with self.op(name):
                            self.compute(name)
                is_full = done % each == 0 and (job.small_collectives or done + each <= len(nodes))
                if is_last and not job.exposed and (is_full or done == len(nodes)):
                    self.all_reduce()
            if done % 5 == 0:
                self.out.append(Memory(-self.kept_bytes))
        if job.exposed and is_last:
            for _ in range(len(nodes) // each):
                self.all_reduce()
        self.out.append(Thread(MAIN))
        if is_last and job.ranks > 1 and not job.pipeline:
            self.out.append(Order(COMPUTE, COMMUNICATION))

    def again(self, layer: int) -> None:
        """The forward of a layer, once more: checkpointed activations. It draws from a sequence of its own."""
        host, device = self.host, self.device
        self.section("recompute", layer)
        self.tag = "recompute"
        self.layer(layer)
        self.tag, self.host, self.device = "compute", host, device

    def all_reduce(self) -> None:
        job = self.job
        if job.ranks == 1 or job.pipeline:
            return
        ns, elements = (SMALL_NS, 4096) if job.small_collectives else (job.reduce_ns, 1 << 22)
        name = ALL_REDUCE.format("f32" if job.fp32 else "bf16")
        self.collective("c10d::allreduce_", "nccl:all_reduce", name, ns, tuple(range(job.ranks)), elements)

    def staged(self) -> None:
        """A pipeline: all batches forward, then all of them backward."""
        job, rank = self.job, self.rank
        self.section("pipeline")
        done: list[list[Node]] = []
        for micro in range(job.micro):
            if rank:
                self.pass_on("recv", rank - 1, rank)
            done.append(self.forward(micro))
            if rank < job.ranks - 1:
                self.pass_on("send", rank, rank + 1)
        for micro, nodes in enumerate(reversed(done)):
            if rank < job.ranks - 1:
                self.pass_on("recv", rank + 1, rank)
            self.backward(nodes, micro, is_last=micro == job.micro - 1)
            if rank:
                self.pass_on("send", rank, rank - 1)

    def pass_on(self, what: str, source: int, target: int) -> None:
        said = f"nccl:send {source}->{target}" if what == "send" else f"nccl:recv {target}<-{source}"
        self.collective(f"c10d::{what}", said, SEND_RECV, self.job.reduce_ns // 3, (source, target), 1 << 20)
        if what == "recv":
            self.out.append(Order(COMPUTE, COMMUNICATION))

    def optimizer(self) -> None:
        job = self.job
        self.section("optimizer", job.loop_optimizer)
        if job.gloo_ns and job.ranks > 1:
            with self.range("c10d::allreduce_"), self.range("gloo:all_reduce", "user"):
                self.out.append(Meet(tuple(range(job.ranks)), job.gloo_ns))
        self.extra("optimizer")
        with self.range("Optimizer.step#AdamW.step", "user"):
            parameters = range(job.layers * job.parameters if job.loop_optimizer else 1)
            for name in (f"aten::{op}" for _ in parameters for op in (LOOP if job.loop_optimizer else FOREACH)):
                ns = FOREACH_NS / (job.layers * job.parameters) if job.loop_optimizer else FOREACH_NS
                with self.op(name):
                    kernel = f"void at::native::multi_tensor_apply_kernel<{name[6:]}>(int)"
                    self.launch(kernel, max(ns, LOOP_NS / 4), name, "optimizer")

    def end_of_step(self) -> None:
        job, step = self.job, self.step
        self.section("end")
        if job.item_every and step % job.item_every == job.item_every - 1 and step not in job.plain:
            self.item()
        if job.leak_bytes:
            self.out.append(Memory(job.leak_bytes))
        self.extra("end")
        if step in job.plain:
            return
        if job.validate_every and step % job.validate_every == job.validate_every - 1:
            with self.range("validate", "user"):
                for batch in range(2):
                    self.forward(batch, is_validation=True)
                self.item()
        if job.checkpoint_every and step % job.checkpoint_every == job.checkpoint_every - 1:
            with self.range("checkpoint", "user"):
                self.copy(("Device", "Pageable"), 2_000_000, 32 << 20, "checkpoint")
                self.pass_(5_000_000, "checkpoint")
