"""Lists the sources, which are the kinds of traces that opspan can read. Help and messages about a source are made from
this list.

The module of readers/ that has the same name as a source reads it, and docs/formats/NAME.md describes its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# Options of `opspan exec` and `opspan run` that a sentence about missing information may suggest. If labels without
# options are enough, the sentence uses an empty text instead.
SHAPES, MODULES = " --record-shapes", " --modules"


class Source(NamedTuple):
    name: str  # the name of the module in readers/, and the value of opspan.load(source=...)
    reads: str  # a description of the files

    # Reading a large file into tables needs at least this many bytes of memory for each byte of the file (tools/bench
    # measures this). 0 means that the memory does not depend on the size, for example because most files of a folder
    # are not read.
    memory: float = 2.0
    is_folder_of_traces: bool = False  # True if a folder of such files is one trace, and each file alone is a trace too

    # The command that captures an unedited script with labels; {} is replaced by further options. If opspan cannot
    # label for a tool, a mapping from each option to what a user has to run or to add to the program.
    labelled_by: str | Mapping[str, str] = "opspan run --emit nvtx{} -o capture -- python train.py"

    def labelling(self, options: str = "") -> str:
        how = self.labelled_by
        return how.format(options) if isinstance(how, str) else how[options]


_ROCPD = (
    "rocprofv3 --hip-trace --kernel-trace --marker-trace --output-format rocpd -- python train.py`, with "
    "`torch.autograd.profiler.emit_nvtx(record_shapes=True)"
)
# Readers are imported one by one until one of them recognises the file, so the most common sources come first.
SOURCES = (
    Source(
        "nsys",
        "Nsight Systems reports, SQLite exports, parquetdir and arrowdir folders",
        labelled_by="nsys profile -t cuda,nvtx -o report opspan exec{} train.py",
    ),
    Source("capture", "opspan captures (*.opspan files and folders of them)", memory=1.5, is_folder_of_traces=True),
    Source("saved", "folders written by Trace.save", memory=1.0),
    Source(
        "nvprof",
        "nvprof databases (*.nvvp, *.nvprof, *.prof, *.sql)",
        labelled_by="nvprof -o train.prof opspan exec --emit nvtx{} train.py",
    ),
    Source(
        "rocpd",
        "rocpd databases of rocprofv3, rocprof-sys and rocmProfileData (*.db, *.rpd)",
        labelled_by=MappingProxyType(dict.fromkeys(("", SHAPES, MODULES), _ROCPD)),
    ),
    Source(
        "unitrace",
        "Chrome traces of Intel's unitrace",
        memory=0.9,
        labelled_by="unitrace --chrome-itt-logging --chrome-kernel-logging opspan exec --emit itt{} train.py",
    ),
    Source(
        "kineto",
        "torch.profiler's Chrome traces (*.pt.trace.json, *.json.gz)",
        memory=0.9,
        labelled_by=MappingProxyType(
            {
                "": "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
                SHAPES: "torch.profiler.profile(record_shapes=True)",
                MODULES: "torch.profiler.profile(with_stack=True)",
            }
        ),
    ),
    Source(
        "vtune",
        "VTune results (folders, *.vtune, dicer.db, zip and tar files of them) and interval CSVs",
        memory=0,
        labelled_by="vtune -collect hotspots -knob enable-user-tasks=true -r r000hs -- opspan exec{} train.py",
    ),
    Source(
        "perf",
        "text that `perf script` printed",
        labelled_by="opspan run --perf --emit nvtx{} -o capture -- python train.py",
    ),
)


def source_of(name: str) -> Source | None:
    return next((source for source in SOURCES if source.name == name), None)
