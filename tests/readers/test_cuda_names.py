"""Functions, and kinds of copies, memories, waits and overheads, are numbers in the files of nvprof or of nsys.

What each number stands for is written down outside of opspan: for nvprof in cupti_activity.h, for nsys in the tables
ENUM_* of its newer exports. Older exports have no such tables, and have to be read with the same names.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import opspan
from builders import nsys, nvprof
from builders.nvprof import ZERO_NS
from opspan.readers.nvprof import cbids

# CUPTI_ACTIVITY_MEMCPY_KIND_* and CUPTI_ACTIVITY_MEMORY_KIND_*, from 0 on.
COPIES = "UNKNOWN HTOD DTOH HTOA ATOH ATOA ATOD DTOA DTOD HTOH PTOP".split()
MEMORIES = "UNKNOWN PAGEABLE PINNED DEVICE ARRAY MANAGED DEVICE_STATIC MANAGED_STATIC".split()
# CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_*, from 0 on, with the labels of ENUM_CUPTI_SYNC_TYPE.
WAITS = ["Unknown", "Event sync", "Stream wait sync", "Stream sync", "Context sync"]
# Labels of ENUM_CUPTI_OVERHEAD_TYPE from 1 on, and CUPTI_ACTIVITY_OVERHEAD_* of the same name.
OVERHEADS = {
    "Unknown": 0,
    "Driver JIT compiler (CUDA)": 1,
    "Buffer flush (Profiler)": 1 << 16,
    "Instrumentation (Profiler)": 2 << 16,
    "Resource creation/destruction (Profiler)": 3 << 16,
    "Runtime module loading (CUDA)": 4 << 16,
    "Lazy function loading (CUDA)": 5 << 16,
    "Command buffer full (CUDA)": 6 << 16,
}
# Other tables of nsys, as exports of 2025 have them.
ENUMS = {
    "ENUM_CUDA_MEM_KIND": "Pageable,Pinned,Device,Array,Managed,Device Static,Managed Static,Unknown".split(","),
    "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE": ["Unknown", "Read", "Write", "Atomic", "Prefetch"],
    "ENUM_CUPTI_SYNC_TYPE": WAITS,
    "ENUM_CUPTI_OVERHEAD_TYPE": ["Undefined", *OVERHEADS],
}


def texts(column: pl.Series) -> list[str]:
    return column.cast(pl.String).to_list()


def test_nvprof_copies_and_fills_are_named_as_cupti_numbers_them(tmp_path: Path) -> None:
    copies = [nvprof.on_gpu(1, 10, 20, copyKind=kind, srcKind=kind % 8, dstKind=3) for kind in range(len(COPIES))]
    fills = [nvprof.on_gpu(1, 10, 20, memoryKind=kind) for kind in range(len(MEMORIES))]

    work = opspan.load(nvprof.profile(tmp_path / "x.nvprof", {"MEMCPY": copies, "MEMSET": fills})).work

    memories = [name.lower().replace("_", " ") for name in MEMORIES]
    assert [name.upper() for name in texts(work["name"].head(len(copies)))] == [f"MEMCPY {name}" for name in COPIES]
    assert texts(work["copy_from"].head(len(MEMORIES))) == memories
    assert texts(work["copy_to"].tail(len(MEMORIES))) == memories


def test_nvprof_waits_and_overheads_are_named_as_cupti_numbers_them(tmp_path: Path) -> None:
    waits = [nvprof.on_gpu(1, 10, 20, type=kind) for kind in range(len(WAITS))]
    times = {"start": ZERO_NS + 1, "end": ZERO_NS + 2}
    overheads = [{"overheadKind": kind, **nvprof.of_process(), **times} for kind in OVERHEADS.values()]

    work = opspan.load(nvprof.profile(tmp_path / "x.nvprof", {"SYNCHRONIZATION": waits, "OVERHEAD": overheads})).work

    assert texts(work["name"]) == [*(label.replace("wait sync", "wait") for label in WAITS), *OVERHEADS]


def test_nsys_exports_without_enumerations_are_named_like_those_that_have_them(tmp_path: Path) -> None:
    place = {"start": 1, "end": 2, "globalPid": nsys.global_pid(100), "deviceId": 0, "address": 1, "bytes": 1}
    tables: dict[str, nsys.Rows] = {
        "StringIds": nsys.strings("a"),
        "CUPTI_ACTIVITY_KIND_MEMSET": [{**place, "memKind": kind} for kind in range(8)],
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS": [
            {**place, "faultAccessType": kind, "numberOfPageFaults": 1} for kind in range(5)
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [{**place, "syncType": kind} for kind in range(5)],
        "CUPTI_ACTIVITY_KIND_OVERHEAD": [
            {"start": 1, "end": 2, "globalTid": nsys.tid(100), "overheadType": kind} for kind in range(9)
        ],
    }
    enums = {
        table: [{"id": number, "name": "-", "label": label} for number, label in enumerate(labels)]
        for table, labels in ENUMS.items()
    }

    old = opspan.load(nsys.export(tmp_path / "old.sqlite", tables))
    new = opspan.load(nsys.export(tmp_path / "new.sqlite", {**tables, **enums}))

    named = [name.replace("wait sync", "wait") for name in texts(new.work["name"])]
    assert (texts(old.work["name"]), texts(old.work["copy_to"])) == (named, texts(new.work["copy_to"]))
    assert texts(old.memory["name"]) == texts(new.memory["name"])
    assert new.work["copy_to"].n_unique() == len(ENUMS["ENUM_CUDA_MEM_KIND"]) + 1  # and null, of what is no fill


def test_no_function_that_nvprof_ever_saw_is_without_a_name() -> None:
    assert set(cbids.RUNTIME) >= set(range(1, 487))
    assert set(cbids.DRIVER) >= set(range(1, 784))


def test_numbers_of_functions_are_cuptis() -> None:
    known = {13: "cudaLaunch", 31: "cudaMemcpy", 211: "cudaLaunchKernel", 269: "cudaLaunchCooperativeKernel"}
    assert known.items() <= cbids.RUNTIME.items()
    textures = {55: "cudaBindTexture", 58: "cudaUnbindTexture", 186: "cudaDestroyTextureObject"}
    assert textures.items() <= cbids.RUNTIME.items()
    assert {92: "cuTexRefCreate", 258: "cuGraphicsResourceGetMappedPointer"}.items() <= cbids.DRIVER.items()
    assert {307: "cuLaunchKernel", 514: "cuGraphLaunch", 276: "cuMemcpyHtoD"}.items() <= cbids.DRIVER.items()
