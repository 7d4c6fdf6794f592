"""The sources, a line each: all help and messages about a source come from here.

The module of a source's name in readers/ reads it; docs/formats/NAME.md describes its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# The options that a sentence about missing information may name; "" means labels alone.
SHAPES, MODULES = " --record-shapes", " --modules"


class Source(NamedTuple):
    name: str  # the module in readers/, and the value of opspan.load(source=...)
    reads: str  # a description
    # Memory that reading and a table need at least, per byte of a large file (tools/bench measures it). 0: it does not
    # depend on the size, as for a folder that is mostly left unread.
    memory: float = 2.0
    is_folder_of_traces: bool = False  # a folder of its files is one trace, but each file is a trace as well
    # The command that captures an unedited script with labels; {} stands for further options. For a tool that takes no
    # labels from opspan: the code to add to the program, by option.
    labelled_by: str | Mapping[str, str] = "opspan run --emit nvtx{} -o capture -- python train.py"

    def labelling(self, options: str = "") -> str:
        how = self.labelled_by
        return how.format(options) if isinstance(how, str) else how[options]


_ROCPD = (
    "rocprofv3 --hip-trace --kernel-trace --marker-trace --output-format rocpd -- python train.py`, with "
    "`torch.autograd.profiler.emit_nvtx(record_shapes=True)"
)
# Readers are imported one by one until one knows the file, so the most common come first.
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
)


def source_of(name: str) -> Source | None:
    return next((source for source in SOURCES if source.name == name), None)
