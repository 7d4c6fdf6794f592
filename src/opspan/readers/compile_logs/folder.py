"""Finds and reads the files that torch.compile wrote into a folder.

dedicated_log_torch_trace_rank_0_x1y2.log          a log that TORCH_TRACE=FOLDER wrote
run_2026_11_28_17_55-pid_32592/torchinductor/      written with TORCH_COMPILE_DEBUG=1: a folder for each graph
    model__0_forward_1.0/output_code.py, fx_graph_transformed.py, inductor_provenance_tracking_node_mappings.json
kernels.json                                       output of torch._inductor.debug.create_kernel_information_json()
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from opspan.errors import NotATrace, NotReadable
from opspan.files import open_file
from opspan.formats.boundary import boundary
from opspan.formats.budget import REPORT, Limit
from opspan.formats.compressed import FAILURES, opened
from opspan.printable import path_text
from opspan.readers.compile_logs.graph import CompiledGraph
from opspan.readers.compile_logs.graph_text import nodes_of
from opspan.readers.compile_logs.lines import is_log
from opspan.readers.compile_logs.log import CompiledProcess, add_mappings, add_stacks, lists_of, read_log
from opspan.readers.compile_logs.output_code import code_of
from opspan.tables import Issues

_HEAD_BYTES = 65_536
FILES = Limit("files and folders are in the folder", always=100_000)
_DEEPEST = 8
_SUFFIXES = (".log", ".txt", ".json", ".gz", ".bz2", ".xz")
_CODE, _GRAPH = "output_code.py", "fx_graph_transformed.py"
_MAPPINGS = "inductor_provenance_tracking_node_mappings.json"
_STACKS = "inductor_provenance_tracking_kernel_stack_traces.json"
_OF_A_GRAPH = frozenset((_CODE, _MAPPINGS, _STACKS))
_PID = re.compile(r"-pid_(\d{1,10})$")
_GRAPH_NAME = re.compile(r"__(\d{1,9}_(?:forward|backward|inference))_")
_IN_JSON = (b'"post_grad_nodes"', b'"stack_traces"', b'"cppCodeToPost"')


def read_folder(path: Path) -> tuple[list[CompiledProcess], list[Issues]]:
    """Reads a folder or a single file. Raises an error if torch.compile wrote nothing there."""
    with boundary(path):
        if not path.exists():
            raise NotReadable(f"there is no {path_text(path)}; expected a folder of TORCH_TRACE, or a file in it")
        if not path.is_dir():
            return _read_file(path)
        files, graphs = _walk(path)
        processes, issues, is_known = list[CompiledProcess](), list[Issues](), bool(graphs)
        for file in files:
            head = _head(file)
            if not is_log(head) and not _is_json(file, head):
                continue
            is_known = True
            of_file, found = _read_file(file)
            processes += of_file
            issues += found
        if not is_known:
            raise NotATrace(_nothing(path))
        told = {process.pid for process in processes if any(graph.kernel_stacks for graph in process.graphs)}
        for pid, folders in graphs.items():
            if pid is None or pid not in told:  # otherwise the log already has the content of the folders
                one = Issues(str(path))
                processes.append(CompiledProcess(pid, None, [_read_graph(folder, one) for folder in folders]))
                issues.append(one)
        return processes, issues


def _nothing(path: Path) -> str:
    return (
        f"{path_text(path)} has nothing that torch.compile wrote; expected a folder of TORCH_TRACE=FOLDER or of "
        "TORCH_COMPILE_DEBUG=1, a log in it, or the JSON of torch._inductor.debug.create_kernel_information_json()"
    )


def _walk(path: Path) -> tuple[list[Path], dict[int | None, list[Path]]]:
    """Returns the files that may be logs or JSON, and for each process id the folders of its graphs."""
    files: list[Path] = []
    graphs: dict[int | None, list[Path]] = {}
    left = FILES.allows()
    for place, folders, names in os.walk(path):
        folder = Path(place)
        left -= len(names) + len(folders)
        if left < 0:
            raise FILES.passed(path)
        depth = len(folder.relative_to(path).parts)
        folders[:] = sorted(folders) if depth < _DEEPEST else []
        if not _OF_A_GRAPH.isdisjoint(names):
            found = next((match for part in reversed(folder.parts) if (match := _PID.search(part))), None)
            graphs.setdefault(int(found[1]) if found else None, []).append(folder)
        else:
            files += [folder / name for name in sorted(names) if name.endswith(_SUFFIXES)]
    return files, graphs


def _head(file: Path) -> bytes:
    """Returns the first bytes of the file's unpacked content; no bytes if the file cannot be read."""
    try:
        with open_file(file) as stream:
            head = stream.read(16)
        with opened(file, head) as content:
            return content.read(_HEAD_BYTES)
    except FAILURES:
        return b""


def _is_json(file: Path, head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and any(key in head for key in _IN_JSON)


def _read_file(file: Path) -> tuple[list[CompiledProcess], list[Issues]]:
    issues = Issues(str(file))
    with boundary(file):
        head = _head(file)
        if is_log(head):
            with open_file(file) as stream:
                packed = stream.read(16)
            return list(read_log(file, packed, issues)), [issues]
        if not head.lstrip().startswith(b"{"):
            raise NotATrace(_nothing(file))
        graph = _of_json(file, REPORT.read(file))
        return [CompiledProcess(None, None, [graph])], [issues]


def _of_json(file: Path, raw: bytes) -> CompiledGraph:
    """Reads a JSON file of one of three kinds: with node mappings, with stacks of each kernel, or with stack_traces,
    post_grad_nodes and pre_grad_nodes of each kernel."""
    graph = CompiledGraph()
    try:
        values = json.loads(raw)
        if "cppCodeToPost" in values:
            add_mappings(graph, raw.decode("utf-8", "replace"))
        elif any(isinstance(value, dict) for value in values.values()):
            kernels = {name: lists_of(value) for name, value in values.items() if isinstance(value, dict)}
            graph.kernel_stacks = _column(kernels, "stack_traces")
            graph.kernel_nodes = _column(kernels, "post_grad_nodes")
            graph.kernel_before = _column(kernels, "pre_grad_nodes")
        else:
            add_stacks(graph, raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise NotATrace(_nothing(file)) from error
    if not graph.kernel_stacks and not graph.kernel_nodes:
        raise NotATrace(_nothing(file))
    return graph


def _column(kernels: dict[str, dict[str, list[str]]], name: str) -> dict[str, list[str]]:
    return {kernel: lists[name] for kernel, lists in kernels.items() if name in lists}


def _read_graph(folder: Path, issues: Issues) -> CompiledGraph:
    """Reads the folder of a graph. Any of the files may be missing."""
    found = _GRAPH_NAME.search(folder.name)
    graph = CompiledGraph(aot_id=found[1] if found else None)
    for name, text in _texts(folder, issues):
        try:
            if name == _CODE:
                graph.code = code_of(text)
            elif name == _GRAPH:
                graph.nodes = nodes_of(text)
            elif name == _MAPPINGS:
                add_mappings(graph, text)
            else:
                add_stacks(graph, text)
        except (ValueError, RecursionError):
            issues.add("damaged_log", detail=f"{name} is no JSON")
    return graph


def _texts(folder: Path, issues: Issues) -> Iterator[tuple[str, str]]:
    for name in (_CODE, _GRAPH, _MAPPINGS, _STACKS):
        file = folder / name
        if not file.exists():
            continue
        try:
            yield name, REPORT.read(file).decode("utf-8", "replace")
        except OSError as error:
            issues.add("unreadable_file", detail=str(error))
