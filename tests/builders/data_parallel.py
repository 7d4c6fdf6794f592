"""Jobs whose one process drives several devices, as nn.DataParallel does it; job_program.py writes all others.

A forward scatters the batch, copies the parameters to the other devices, and gathers on the first device what the
devices return; each has a new thread, and these take turns, op by op, as one of them has the interpreter. The loss and
the optimizer are the first device's. In a backward each device has a thread of autograd, which needs no interpreter;
when all are done, gradients are added up on the first device. NCCL copies and adds up on the streams that compute.
"""

from __future__ import annotations

from collections.abc import Callable

from builders.instructions import Kernel, Launch, Memory, Order, Program, Put, Take, Thread
from builders.job import Job
from builders.job_program import Writer
from builders.training import OP_NS, Node
from builders.training_plan import BACKWARD, MAIN

OF_LAYER = 5  # modules, and nodes of the backward
FORWARD = 100  # the first thread of a forward


class _Device(Writer):
    """Writes the work of one device's threads. It draws the same numbers as a rank of that number."""

    def __init__(self, job: Job, number: int) -> None:
        super().__init__(job, number)
        self.seq = number * 1_000_000  # no arrow says whose a seq is that several threads have
        self.nodes: list[Node] = []
        self.turns, self.takes_turns = 0, False

    def leaf(self, outer: str, inner: str, node: str, keeps: bool = False) -> list[Node]:
        if not self.takes_turns:
            return super().leaf(outer, inner, node, keeps)
        turn = self.turns * self.job.devices + self.rank
        self.turns += 1
        self.out += [Take(f"turn {turn - 1}")] if turn else []
        nodes = super().leaf(outer, inner, node, keeps)
        self.out.append(Put(f"turn {turn}"))
        return nodes


class DataParallel(_Device):
    """Writes the work of the process, and that of its first device."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, 0)
        self.others = [_Device(job, number) for number in range(1, job.devices)]
        self.times = 0

    def program(self) -> Program:
        program = super().program()
        for other in self.others:  # the files have the memory of the first device alone
            program.workers.append([one for one in other.out if not isinstance(one, Memory)])
        return program

    def forward(self, micro: int, is_validation: bool = False) -> list[Node]:
        def of_device(device: _Device, tid: int) -> None:
            device.forward_tid, device.takes_turns = tid, True
            device.nodes = Writer.forward(device, micro, is_validation)
            device.takes_turns = False

        for other in self.others:
            other.step, other.batch = self.step, self.job.batch(other.rank, self.step)
        with self.range("DataParallel_0", "module"), self.range("DataParallel.forward", "user"):
            self.section("scatter", micro, is_validation)
            self.copies("Scatter", is_to_first=False)
            self.pass_(OP_NS // 4 * OF_LAYER * self.job.layers * self.job.devices, "replicate")
            self.together("Broadcast", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
            self.on_threads(FORWARD + self.times * self.job.devices, of_device)
            self.section("gather", micro, is_validation)
            self.copies("Gather", is_to_first=True)
        if not is_validation:
            self.batch *= self.job.devices  # the loss is over the batches of all devices
        return self.nodes

    def backward(self, nodes: list[Node], micro: int, is_last: bool) -> None:
        def of_device(device: _Device, _: int) -> None:
            Writer.backward(device, device.nodes, micro, is_last=False)

        forward_tid, self.forward_tid = self.forward_tid, MAIN
        super().backward(nodes[-1:], micro, is_last=False)
        self.forward_tid, self.batch = forward_tid, self.job.batch(self.rank, self.step)
        self.out.append(Thread(BACKWARD))
        self.section("gather backward", micro)
        self.copies("GatherBackward", is_to_first=False)
        self.on_threads(BACKWARD, of_device)
        self.out.append(Thread(BACKWARD))
        self.section("reduce", micro)
        kind = "f32" if self.job.fp32 else "bf16"
        self.together("BroadcastBackward", f"ncclDevKernel_Reduce_Sum_{kind}_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
        self.out.append(Thread(MAIN))

    def on_threads(self, tid: int, act: Callable[[_Device, int], None]) -> None:
        """Each device has a thread of its own; the one that started them waits for all."""
        self.times += 1
        self.out.append(Put(f"begin {self.times}"))
        for other in self.others:
            other.out += [Take(f"begin {self.times}"), Thread(tid + other.rank)]
            act(other, tid + other.rank)
            other.out.append(Put(f"done {self.times} {other.rank}"))
        self.out.append(Thread(tid))
        act(self, tid)
        self.out += [Thread(MAIN), *(Take(f"done {self.times} {other.rank}") for other in self.others)]

    def copies(self, name: str, is_to_first: bool) -> None:
        """Between the first device and each other. The device that has the data copies it; both wait for each other."""
        with self.range(name):
            for other in self.others:
                source, target = (other.stream, self.stream) if is_to_first else (self.stream, other.stream)
                with self.op("aten::copy_"):
                    self.out.append(Order(source, target))
                    ns = self.job.batch_ns // self.job.devices
                    self.copy(("Device", "Device"), ns, 8 << 20, "batch", source)
                    self.out.append(Order(target, source))

    def together(self, name: str, kernel: str) -> None:
        """All parameters or gradients, in as many buckets as an all-reduce has, each half as long as one of these."""
        nodes = OF_LAYER * self.job.layers + 1
        group = tuple(range(self.job.devices))
        with self.range(name):
            for _ in range(nodes // max(nodes // self.job.buckets, 1)):
                ns = self.ns(self.job.reduce_ns / 2, self.device)
                for device in (self, *self.others):
                    one = Kernel(ns, kernel, device.stream, blocks=24, group=group, tag="transfer")
                    self.out.append(Launch([one], self.ns(6_000), "cudaLaunchKernelExC"))
