"""Lists the words that distinguish a report of VTune from other output: titles of columns, names of figures.

    Function,CPU Time,Module          a grouping of VTune, with a metric that other programs print too
    Sync Object,Spin Time             a metric that only VTune prints
    Benchmark,CPU Time,Iterations     no grouping of VTune, and no metric that only VTune prints: not a report

A dashed table or a line `Key: value` is not enough, because nsys, torch, pip, benchmarks and logs print them too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Titles that the first column may have. They are the names of VTune's groupings.
_KEYS = """\
Task Type, Task Domain, Task Duration Type, Host Task, Computing Task, Source Computing Task, Computing Task Purpose,
Offload Region, Function Stack, Function Range, Function, Source Function Stack, Source Function, Call Stack,
Callstack, Callsite, Hierarchy Level, Module, Module Path, Bin, Bin Start Time, Process, Process ID, PID, Thread,
Thread ID, TID, Source File, Source File Path, Source Line, Line, Address, Code Location, Basic Block, Class, Frame
Domain, Frame Type, Frame Duration Type, Frame, Region Domain, Region Type, OpenMP Region, OpenMP Barrier-to-Barrier
Segment, Barrier, Sync Object, Sync Object Type, Wait Function, Memory Object, Bandwidth Domain, Package, Core,
Physical Core, Logical Core, H/W Context, GPU Adapter, GPU Engine, Hardware Event Type, Uncore Event Type, Counter
Type, Simultaneously Utilized Logical CPUs, Simultaneously Running Threads, Index
"""
KEYS = tuple(_KEYS.replace("\n", " ").strip().split(", "))
KEY = "|".join(re.escape(key) for key in sorted(KEYS, key=len, reverse=True))
# Metrics that other programs print too. They count only together with one of KEYS.
SHARED = re.compile(
    r"(?:CPU|Elapsed|Wait|Idle|Task|Frame|Total|Self|Average|Instance|Overhead|Execution) Time\b|Time:Self|Time:Total"
    r"|(?:Task|Wait|Frame|Instance|Event|Sample|Call) Count\b|Count:|% of |Frame Rate|Utilization|Loads$|Stores$"
    r"|Start Address|Source File"
)
# Words that no other program prints.
OWN = re.compile(
    r"Function \(Full\)|Hardware Event|Spin Time|Spin and Overhead|Effective Time|Overhead Time:|CPI Rate"
    r"|(?:Self|Total) Time:|CPU Time:|Wait Time:|Wait Time with|Clockticks|Instructions Retired|Events Per Sample"
    r"|(?:Front-End|Back-End|Memory|Core|L[123]|DRAM|Store|LLC|Cache|Port) Bound\b|Bad Speculation|LLC Miss"
    r"|Average Latency \(cycles\)|Computing Task:|Work Size:|(?:XVE|EU) (?:Array|Threads)|MUX Reliability"
    r"|OpenMP (?:Potential Gain|Region)|Potential Gain|Imbalance:|Estimated Call Count|CPU_CLK_UNHALTED|INST_RETIRED"
)
SUMMARY = ("Hierarchy Level", "Metric Name", "Metric Value")
# Names that only a summary has: of figures, and of sections of figures.
FIGURES = re.compile(
    r"Collection and Platform Info|Paused Time|Total Thread Count"
    r"|Effective (?:CPU|(?:Physical|Logical) Core) Utilization"
    r"|Average (?:CPU (?:Usage|Utilization)|Effective CPU Utilization|Concurrency|Physical Core Utilization)"
    r"|CPI Rate|Clockticks|Instructions Retired|Spin Time|Effective Time|MUX Reliability|Front-End Bound"
    r"|Back-End Bound|Thread Oversubscription|Wait Time with poor|OpenMP Analysis|Microarchitecture Usage"
    r"|GPU (?:Time, %|Stack|Utilization)|EU Array|XVE Array"
)
# Other programs print an elapsed time too, but only VTune's summary has CPU Time indented below it.
ELAPSED, WITHIN_ELAPSED = "Elapsed Time", "CPU Time"


def is_vtunes(titles: Sequence[str], *, is_tools: bool = False) -> bool:
    """Returns whether columns with these titles are from VTune. `is_tools`: the file also has messages of VTune."""
    if tuple(titles[: len(SUMMARY)]) == SUMMARY or (titles[:1] == ["Parameter"] and len(titles) > 1):
        return True
    others = titles[1:]
    if not others or not all(titles[:1]):
        return False
    if any(OWN.match(title) for title in others):
        return True
    parts = [titles[0], *(part.strip() for part in titles[0].split("/"))]
    is_grouping = is_tools or any(part in KEYS for part in parts)
    return is_grouping and any(SHARED.search(title) for title in others)


def is_summary(names: Sequence[str]) -> bool:
    """Returns whether one of the names (of figures or sections) occurs only in summaries."""
    return any(FIGURES.match(name) for name in names)
