"""Pieces of the programs of a job (job_program.py): ranges, launches and copies with the job's times and noise.

Noise is drawn for each part of each step separately. An addition in one place does not change the noise in another, so
that a run with a fault and the same run without it differ by the fault only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from builders.instructions import (
    Begin,
    End,
    Host,
    Instruction,
    Kernel,
    Launch,
    Order,
    Sync,
)
from builders.job import Extra, Job
from builders.training import (
    GEMM,
    ITEM_COPY_NS,
    KERNELS,
    OP_NS,
    SGEMM,
)
from builders.training_plan import (
    COMMUNICATION,
    COMPUTE,
    MAIN,
    STREAMS,
)

TF32 = "ampere_tf32_s1688gemm_tf32_128x128_ldg8_f2f_stages_32x5_tn"
SIMT16 = "ampere_fp16_sgemm_fp16_128x64_tn"
PRODUCTS = ("aten::addmm", "aten::mm")
COMPUTES = ("compute", "recompute")  # tags of kernels of the model
Ranges = Iterator[None]


class Pieces:
    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.step = job, rank, 0
        self.device_number = rank if job.devices > 1 else 0
        self.stream, self.forward_tid = self.device_number * STREAMS + COMPUTE, MAIN
        self.out: list[Instruction] = []
        self.seq = 0
        self.batch = 1.0
        self.section("start")
        gemm = {"bf16": GEMM, "simt16": SIMT16, "tf32": TF32, "fp32": SGEMM}[job.numbers]
        self.names = {"gemm": gemm, "type": "float" if job.fp32 else "c10::BFloat16"}
        self.width = 1021 if job.odd else 1024
        self.tag = "compute"
        self.graph: list[Kernel] | None = None

    def section(self, *what: object) -> None:
        where = (0 if self.job.is_same else self.rank, self.step, *what)
        self.host, self.device = self.job.random(*where, "host"), self.job.random(*where, "device")

    def ns(self, ns: float, random: Any = None) -> int:
        factor = 1.0 if random else self.job.host
        return max(round(ns * factor * (1 + (random or self.host).gauss(0, self.job.noise))), 1)

    def pass_(self, ns: float, tag: str = "host") -> None:
        self.out.append(Host(self.ns(ns), tag))

    def pass_exactly(self, ns: int, tag: str) -> None:
        """Not by the speed of the host: what the job says."""
        self.out.append(Host(self.ns(ns, self.host), tag))

    def extra(self, at: str, layer: int = 0) -> None:
        """Draws nothing: all else stays as it is."""
        for one in self.job.extras:
            if one.at == at and one.layer == layer and one.is_at(self.rank, self.step):
                self.one_extra(one)

    def one_extra(self, one: Extra) -> None:
        named = [Begin(one.name, one.kind)] if one.name else []
        self.out += [*named, Host(one.ns, "extra"), *([End()] if named else [])]

    @contextmanager
    def range(
        self,
        name: str,
        kind: str = "op",
        seq: int | None = None,
        is_backward: bool = False,
        sizes: str | None = None,
        types: str | None = None,
    ) -> Ranges:
        self.out.append(Begin(name, kind, seq, is_backward, sizes, types, self.forward_tid))
        self.pass_(OP_NS // 4)
        yield
        self.pass_(OP_NS // 8)
        self.out.append(End())

    @contextmanager
    def function(self, name: str) -> Ranges:
        self.out += [Begin(name, "function")] if self.job.has_functions else []
        yield
        self.out += [End()] if self.job.has_functions else []

    @contextmanager
    def op(self, name: str, seq: int | None = None, types: str = "") -> Ranges:
        """`types`: of its inputs, if they are not those of the job."""
        self.pass_(OP_NS // 2)
        width = self.width
        inputs = [f"[{width}]", f"[8192, {width}]", f"[{width}, {width}]"] if name == "aten::addmm" else []
        inputs = inputs or [f"[8192, {width}]"] * (2 if name == "aten::copy_" else 1)
        type_ = '"float"' if self.job.fp32 else '"c10::BFloat16"'
        said = (f"[{', '.join(inputs)}]", f"[{types or ', '.join([type_] * len(inputs))}]")
        with self.range(name, "op", seq, False, *said):
            yield

    def compute(self, op: str) -> None:
        ns, name = KERNELS[op]
        self.launch(name.format(**self.names), ns * (self.job.product if op in PRODUCTS else 1), op, self.tag)

    def launch(self, name: str, ns: float, op: str, tag: str) -> None:
        job = self.job
        took = ns * job.kernel * self.batch
        for slower in job.slower:
            took *= slower.of(op, self.rank, self.step, job.steps)
        took *= 1 + self.device.gauss(0, job.noise)
        if job.few_blocks and tag in COMPUTES:
            took *= 132 / job.few_blocks
        split = job.split if tag in COMPUTES else 1
        blocks = (job.few_blocks if tag in COMPUTES else 0) or 1024
        for nth in range(split):
            kernel = Kernel(max(round(took / split), 1), name, self.stream, blocks=blocks, tag=tag)
            if self.graph is not None:
                self.graph.append(kernel)
            else:
                self.out.append(Launch([kernel], self.ns(6_000) if nth == 0 else round(6_000 * job.host)))

    def copy(self, sides: tuple[str, str], ns: int, size: int, tag: str, stream: int = COMPUTE) -> None:
        way = "Memcpy " + "to".join("D" if side == "Device" else "H" for side in sides).replace("DtoD", "PtoP")
        kernel = Kernel(self.ns(ns, self.device), way, stream, "memcpy", 0, size, sides, tag=tag)
        self.out.append(Launch([kernel], self.ns(6_000), "cudaMemcpyAsync", "Pageable" in sides, tag))

    def item(self) -> None:
        with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
            self.copy(("Device", "Pinned"), ITEM_COPY_NS, 4, "item")
            self.out.append(Sync("cudaStreamSynchronize", 2_000, (COMPUTE,), "item"))

    def collective(self, op: str, name: str, kernel: str, ns: int, group: tuple[int, ...], elements: int) -> None:
        self.out.append(Order(COMMUNICATION, COMPUTE))
        type_ = '"float"' if self.job.fp32 else '"c10::BFloat16"'
        with self.range(op), self.range(name, "user", sizes=f"[[{elements}]]", types=f"[{type_}]"):
            took = self.ns(ns, self.device)
            one = Kernel(took, kernel, COMMUNICATION, blocks=24, group=group, elements=elements, tag="transfer")
            self.out.append(Launch([one], self.ns(6_000), "cudaLaunchKernelExC"))
