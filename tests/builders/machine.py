"""A machine that runs programs: hosts with threads, devices with streams, and ranks that meet in collectives.

    rows = run([Program(main=[Begin("aten::mm"), Launch([Kernel(90_000, "gemm")]), End()])])
    rows.ranges, rows.calls, rows.work, rows.memory     what a profiler would have seen; times in ns
    rows.ns                                             how long the whole run took

A program is data: a list of instructions for each thread, without times. The machine gives them times. So the same
program can run again with some durations changed, and what a change is worth is known to the nanosecond.

Physics: work begins after its launch and after what its stream did before; a stream that was told to wait for another
waits for what that one had been given until then; a collective ends for all ranks at once, when the last of them has
come. A stream's launch queue is finite: a launch does not return before the work that is `depth` launches older has
begun. Kernels that run at the same time do not slow each other down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from builders.allocator import Allocator
from builders.instructions import (
    Begin,
    Driver,
    End,
    Group,
    Host,
    Instruction,
    Kernel,
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
from builders.training_plan import MAIN, Call, Moment, Range, Work

BEGIN_NS = 1_000_000_000
LATENCY_NS, BETWEEN_NS, RETURN_NS = 2_000, 1_000, 1_000


class Rows(NamedTuple):
    ranges: list[Range]
    calls: list[Call]
    work: list[Work]
    memory: list[Moment]
    ns: int


def run(programs: Sequence[Program], depth: int = 1022) -> Rows:
    meetings: _Meetings = {}
    ranks = [_Rank(rank, program, depth, meetings) for rank, program in enumerate(programs)]
    while sum(rank.advance() for rank in ranks):
        pass
    stuck = [rank.rank for rank in ranks if not rank.is_done]
    if stuck:
        raise ValueError(f"ranks {stuck} wait for something that never comes")
    begin = min(rank.begin for rank in ranks)
    end = max(rank.end for rank in ranks)
    return Rows(*([row for rank in ranks for row in rank.rows[at]] for at in range(4)), end - begin)  # type: ignore[arg-type]


class _Meeting:
    def __init__(self) -> None:
        self.arrived: dict[tuple[int, int], int] = {}  # by rank and stream: a process may have several devices
        self.ns = 0

    def end(self, group: Group) -> int | None:
        return max(self.arrived.values()) + self.ns if len(self.arrived) == len(group) else None


_Meetings = dict[tuple[Group, str, int], _Meeting]


class _Given:
    """Work that was launched; begin and end are None until they are known."""

    __slots__ = ("after", "begin", "correlation", "end", "kernel", "meeting", "ready")

    def __init__(self, kernel: Kernel, ready: int, correlation: int, after: list[_Given], meeting: _Meeting | None):
        self.kernel, self.ready, self.correlation, self.after, self.meeting = kernel, ready, correlation, after, meeting
        self.begin: int | None = None
        self.end: int | None = None


class _Stream:
    def __init__(self) -> None:
        self.given: list[_Given] = []
        self.entries: list[_Given] = []  # the first work of each launch: what takes a place in the queue
        self.after: list[_Given] = []  # the next work waits for these
        self.known = 0  # the number of entries that have an end


class _Thread:
    def __init__(self, instructions: list[Instruction], now: int) -> None:
        self.instructions, self.now = instructions, now
        self.at, self.tid = 0, MAIN
        self.open: list[tuple[Begin, int, int, int, int | None]] = []  # begin, tid, start, number, parent
        self.call_start: int | None = None  # the start of a call that is waiting


class _Rank:
    def __init__(self, rank: int, program: Program, depth: int, meetings: _Meetings) -> None:
        self.rank, self.depth, self.meetings = rank, depth, meetings
        self.begin = BEGIN_NS
        self.threads = [_Thread(instructions, self.begin) for instructions in (program.main, *program.workers)]
        self.streams: dict[int, _Stream] = {}
        self.flags: dict[str, int] = {}
        self.met: dict[tuple[Group, str, int], int] = {}
        self.number = self.correlation = 0
        self.allocator = Allocator()
        self.rows: tuple[list[Range], list[Call], list[Work], list[Moment]] = ([], [], [], [])

    @property
    def is_done(self) -> bool:
        threads = all(thread.at == len(thread.instructions) for thread in self.threads)
        return threads and all(stream.known == len(stream.given) for stream in self.streams.values())

    @property
    def end(self) -> int:
        return max([self.threads[0].now, *(work.end for work in self.rows[2])])

    def advance(self) -> bool:
        """Runs as far as it can without knowing more of the other ranks; returns whether anything happened."""
        happened = False
        while True:
            moved = self.resolve()
            for thread in self.threads:
                before = thread.at
                while thread.at < len(thread.instructions) and self.step(thread, thread.instructions[thread.at]):
                    thread.at += 1
                moved |= thread.at != before
            if not moved:
                return happened
            happened = True

    # --- devices

    def resolve(self) -> bool:
        happened, moved = False, True
        while moved:
            moved = False
            for stream in self.streams.values():
                while stream.known < len(stream.given) and self.resolve_one(stream):
                    stream.known += 1
                    moved = True
            happened |= moved
        return happened

    def resolve_one(self, stream: _Stream) -> bool:
        given = stream.given[stream.known]
        kernel = given.kernel
        if given.begin is None:
            begin = given.ready
            if stream.known:
                begin = max(begin, stream.given[stream.known - 1].end + BETWEEN_NS)  # type: ignore[operator]
            for other in given.after:
                if other.end is None:
                    return False
                begin = max(begin, other.end + BETWEEN_NS)
            given.begin = begin
            if given.meeting:
                given.meeting.arrived[self.rank, kernel.stream] = begin
                given.meeting.ns = max(given.meeting.ns, kernel.ns)
        end = given.meeting.end(kernel.group) if given.meeting else given.begin + kernel.ns
        if end is None:
            return False
        given.end = end
        row = (self.rank, given.begin, end, kernel.kind, kernel.name, kernel.stream, given.correlation, kernel.blocks)
        self.rows[2].append(Work(*row, kernel.bytes, kernel.sides, kernel.elements, kernel.group))
        return True

    def stream(self, number: int) -> _Stream:
        return self.streams.setdefault(number, _Stream())

    def meeting(self, group: Group, what: str, stream: int = 0) -> _Meeting:
        nth = self.met[group, what, stream] = self.met.get((group, what, stream), -1) + 1
        return self.meetings.setdefault((group, what, nth), _Meeting())

    # --- hosts

    def step(self, thread: _Thread, one: Instruction) -> bool:
        """Returns whether the instruction is done; if not, it waits for something that is not known yet."""
        match one:
            case Host():
                thread.now += one.ns
            case Begin():
                self.number += 1
                parents = [number for begin, *_, number, _ in thread.open if begin.kind in ("module", "function")]
                is_python = one.kind in ("module", "function")
                parent = parents[-1] if is_python and parents else None
                thread.open.append((one, thread.tid, thread.now, self.number, parent))
            case End():
                begin, tid, start, number, parent = thread.open.pop()
                said = (begin.kind, begin.name, begin.seq, begin.is_backward, begin.sizes, begin.types)
                self.rows[0].append(Range(self.rank, tid, start, thread.now, *said, number, parent, begin.forward_tid))
            case Launch():
                return self.launch(thread, one)
            case Sync():
                return self.sync(thread, one)
            case Driver():
                self.called(thread, one.name, thread.now, thread.now + one.ns)
            case Overhead():
                row = (self.rank, thread.now, thread.now + one.ns, "overhead", one.name, thread.tid, 0, 0, 0, None, 0)
                self.rows[2].append(Work(*row))
                thread.now += one.ns
            case Order():
                after = self.stream(one.after).given
                if after:
                    self.stream(one.stream).after.append(after[-1])
                for name in ("cudaEventRecord", "cudaStreamWaitEvent"):
                    self.called(thread, name, thread.now, thread.now + 1_000)
            case Thread():
                thread.tid = one.tid
            case Put():
                self.flags[one.flag] = thread.now
            case Take():
                if one.flag not in self.flags:
                    return False
                thread.now = max(thread.now, self.flags[one.flag])
            case Meet():
                return self.meet(thread, one)
            case Memory():
                self.memory(thread, one.bytes)
        return True

    def memory(self, thread: _Thread, size: int) -> None:
        held = self.allocator
        address = held.take(size) if size > 0 else held.give_back(-size)
        self.rows[3].append(Moment(self.rank, thread.tid, thread.now, size, address, held.allocated, held.reserved))

    def called(self, thread: _Thread, name: str, start: int, end: int) -> int:
        self.correlation += 1
        self.rows[1].append(Call(self.rank, thread.tid, start, end, name, self.correlation))
        thread.now = end
        return self.correlation

    def launch(self, thread: _Thread, one: Launch) -> bool:
        stream = self.stream(one.work[0].stream)
        if thread.call_start is None:
            at = len(stream.entries) - self.depth
            gate = 0
            if at >= 0:
                oldest = stream.entries[at].begin
                if oldest is None:
                    self.resolve()
                    oldest = stream.entries[at].begin
                if oldest is None:
                    return False
                gate = oldest
            start = thread.now
            correlation = self.called(thread, one.call, start, max(start + one.ns, gate))
            for kernel in one.work:
                meeting = self.meeting(kernel.group, "device", kernel.stream) if kernel.group else None
                given = _Given(kernel, thread.now + LATENCY_NS, correlation, stream.after, meeting)
                stream.given.append(given)
                if kernel is one.work[0]:
                    stream.entries.append(given)
                stream.after = []
            if not one.waits:
                return True
            thread.call_start = len(self.rows[1]) - 1
            self.resolve()
        end = stream.given[-1].end
        if end is None:
            return False
        call = thread.call_start
        thread.now = max(thread.now, end + RETURN_NS)
        self.rows[1][call] = self.rows[1][call]._replace(end=thread.now)
        thread.call_start = None
        return True

    def sync(self, thread: _Thread, one: Sync) -> bool:
        self.resolve()
        streams = [self.stream(number) for number in one.streams] or list(self.streams.values())
        last = [stream.given[-1].end for stream in streams if stream.given]
        if any(end is None for end in last):
            return False
        end = max([thread.now + one.ns, *(end + RETURN_NS for end in last if end is not None)])
        self.called(thread, one.call, thread.now, end)
        return True

    def meet(self, thread: _Thread, one: Meet) -> bool:
        if thread.call_start is None:
            self.waited = self.meeting(one.group, "host")
            self.waited.arrived[self.rank, 0] = thread.now
            self.waited.ns = max(self.waited.ns, one.ns)
            thread.call_start = 0
        end = self.waited.end(one.group)
        if end is None:
            return False
        thread.now, thread.call_start = end, None
        return True
