"""Collects the compiled graphs of a TORCH_TRACE log. Gives entries about compilations and graph breaks to
compilations.py.

Entries about one compilation have the same `frame_id`, `frame_compile_id` and `attempt`. A compilation may have several
graphs. The entries about a graph come in this order, and any entry may be missing:

    before_post_grad_graph      the graph before the compiler's passes
    inductor_post_grad_graph    the compiled graph; after_post_grad_graph in older versions
    inductor_output_code        the generated code
    inductor_triton_kernel_to_post_grad_nodes           kernel -> nodes of the compiled graph
    inductor_provenance_tracking_node_mappings          the same, and node -> nodes before autograd
    inductor_provenance_tracking_kernel_stack_traces    kernel -> stacks of the program's functions
    fx_graph_cache_miss         or ..._hit, or ..._bypass; older versions write this entry before the mappings

So an entry begins a new graph, unless it comes later in this order than the previous entry. When a compilation is done,
torch writes an entry `compilation_metrics` without a payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opspan.readers.compile_logs.compilations import BREAK, CompilationLog, Row, metrics_of
from opspan.readers.compile_logs.graph import CompiledGraph
from opspan.readers.compile_logs.graph_text import Node, nodes_of
from opspan.readers.compile_logs.lines import Entry, entries
from opspan.readers.compile_logs.module_paths import MODULES, Modules, texts_of
from opspan.readers.compile_logs.output_code import code_of
from opspan.tables import Issues

_ORDER = (
    "before_post_grad_graph",
    "inductor_post_grad_graph",
    "inductor_output_code",
    "inductor_triton_kernel_to_post_grad_nodes",
    "inductor_provenance_tracking_node_mappings",
    "inductor_provenance_tracking_kernel_stack_traces",
)
_ALIASES = {"after_post_grad_graph": "inductor_post_grad_graph"}
_BEFORE_AUTOGRAD = ("dynamo_output_graph", "before_pre_grad_graph", "after_pre_grad_graph")
_CACHE = ("fx_graph_cache_miss", "fx_graph_cache_hit", "fx_graph_cache_bypass")
_WANTED = frozenset((*_ORDER, *_ALIASES, *_BEFORE_AUTOGRAD, *_CACHE, BREAK, MODULES))
# Artifacts whose names begin like this say nothing about kernels, and are skipped without an issue.
_OTHERS: tuple[str, ...] = (
    "aot_",
    "aotautograd_",
    "fx_graph_",
    "dynamo_",
    "before_",
    "after_",
    "backward_",
    "compiled_",
    "torch",
    "graph_",
    "inductor_post_to_pre_grad_nodes",
    "triton_kernel_info",
    "runtime_wrapper_",
    "recompile",
    "cudagraph",
)
_KEY = re.compile(r'"key": ?"(\w{1,200})"')
_PLAIN = ("dynamo_output_graph", "inductor_post_grad_graph", "inductor_output_code")  # entries without `artifact`
_MOST_OPEN = 64  # limit on the compilations in progress that are remembered
_FILE_RANK = re.compile(r"rank_(\d{1,6})_")


@dataclass
class CompiledProcess:
    """The graphs, compilations and graph breaks of a process. The keys of compilations and graph breaks are digests of
    log entries. `rank` is None if the log does not state it."""

    pid: int | None
    rank: int | None
    graphs: list[CompiledGraph] = field(default_factory=list)
    compilations: dict[bytes, Row] = field(default_factory=dict)
    graph_breaks: dict[bytes, Row] = field(default_factory=dict)


@dataclass
class _Compilation:
    graph: CompiledGraph | None = None
    before: dict[str, Node] = field(default_factory=dict)
    modules: Modules = field(default_factory=Modules)
    reached: int = -1  # index in _ORDER of the graph's last entry
    caches: list[str] = field(default_factory=list)  # hit, miss or bypass, for each graph since the last metrics entry


def read_log(path: Path, head: bytes, issues: Issues) -> Iterator[CompiledProcess]:
    """Yields the processes that wrote into the log."""
    in_name = _FILE_RANK.search(path.name)
    rank = int(in_name[1]) if in_name else None
    processes: dict[int, ProcessLog] = {}
    for entry in entries(path, head, lambda values: _name_of(values) in _WANTED, issues):
        process = processes.setdefault(entry.pid, ProcessLog(CompiledProcess(entry.pid, rank), issues))
        process.add(entry)
    for process in processes.values():
        yield process.process


class ProcessLog:
    def __init__(self, process: CompiledProcess, issues: Issues) -> None:
        self.process = process
        self._issues = issues
        self._open: dict[Hashable, _Compilation] = {}
        self._log = CompilationLog(process.pid, process.compilations, process.graph_breaks, issues)

    def add(self, entry: Entry) -> None:
        values = entry.values
        if is_number(values.get("rank")):
            self.process.rank = values["rank"]
        name = _name_of(values)
        key = tuple(
            number if is_number(number := values.get(part)) else None
            for part in ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
        )
        if metrics_of(values) is not None:
            caches = self._open[key].caches if key in self._open else []
            self._log.add_metrics(values, _compile_id(key), caches, entry.time_ns)
            caches.clear()
            return
        if name not in _WANTED:
            self._issues.add("other_artifacts", 1 if "artifact" in values and not name.startswith(_OTHERS) else 0, name)
            return
        if entry.payload is None:
            return
        if name == BREAK:
            self._log.add_break(values, _compile_id(key), entry.payload)
            return
        compilation = self._open.pop(key, None) or _Compilation()
        self._open[key] = compilation  # moved to the end, so that the first key is the least recently used
        if len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]
        try:
            self._take(compilation, key, name, entry.payload)
        except (ValueError, RecursionError):
            self._issues.add("damaged_log", detail=f"{name} is no JSON")

    def _take(self, compilation: _Compilation, key: tuple[int | None, ...], name: str, payload: str) -> None:
        if name in _BEFORE_AUTOGRAD:
            compilation.before |= nodes_of(payload)
            return
        if name == MODULES:
            _add_modules(compilation.modules, compilation.graph, payload)
            return
        if name in _CACHE:
            if len(compilation.caches) < _MOST_OPEN:
                compilation.caches.append(name.rpartition("_")[2])
            if (graph := compilation.graph) is not None and graph.cache_key is None:
                graph.is_from_cache = name == "fx_graph_cache_hit"
                if found := _KEY.search(payload):
                    graph.cache_key = found[1]
            return
        name = _ALIASES.get(name, name)
        graph, order = compilation.graph, _ORDER.index(name)
        if graph is None or order <= compilation.reached:
            graph = CompiledGraph(
                _compile_id(key), key[-1], before=compilation.before, modules_before=compilation.modules
            )
            self.process.graphs.append(graph)
            compilation.graph = graph
        compilation.reached = order
        FILL[name](graph, payload)


def _name_of(values: dict[str, Any]) -> str:
    artifact = values.get("artifact")
    if isinstance(artifact, dict):
        return str(artifact.get("name", ""))
    return next((name for name in _PLAIN if name in values), "")


def _compile_id(key: tuple[int | None, ...]) -> str | None:
    """Returns the compile id as torch writes it in the names of ranges: 0/1, or !2/0/1 with compiled autograd."""
    autograd, frame, compile_, _ = key
    own = None if frame is None or compile_ is None else f"{frame}/{compile_}"
    if autograd is None:
        return own
    return f"!{autograd}" if own is None else f"!{autograd}/{own}"


# --- functions that add the content of an entry to a graph


def _add_modules(modules: Modules, graph: CompiledGraph | None, payload: str) -> None:
    values = json.loads(payload)
    if not isinstance(values, dict):
        raise ValueError(payload[:80])
    paths = texts_of(values.get("nodes"))
    modules.roots |= texts_of(values.get("roots"))
    if values.get("graph") == "before":
        modules.paths |= paths
    elif graph is not None:
        graph.modules |= paths


def _add_nodes(graph: CompiledGraph, payload: str) -> None:
    graph.nodes |= nodes_of(payload)


def _add_code(graph: CompiledGraph, payload: str) -> None:
    graph.code = code_of(payload)


def _add_kernels(graph: CompiledGraph, payload: str) -> None:
    graph.kernel_nodes = lists_of(json.loads(payload))


def add_mappings(graph: CompiledGraph, payload: str) -> None:
    mappings = json.loads(payload)
    if not isinstance(mappings, dict):
        raise ValueError(payload[:80])
    graph.to_before = lists_of(mappings.get("postToPre", {}))
    graph.kernel_nodes = lists_of(mappings.get("cppCodeToPost", {})) or graph.kernel_nodes


def add_stacks(graph: CompiledGraph, payload: str) -> None:
    graph.kernel_stacks = lists_of(json.loads(payload))


def lists_of(values: object) -> dict[str, list[str]]:
    """Returns the lists in a JSON object. Leaves out all other values, and list elements other than texts."""
    if not isinstance(values, dict):
        raise ValueError(str(values)[:80])
    return {
        name: [one for one in some if isinstance(one, str)] for name, some in values.items() if isinstance(some, list)
    }


FILL: dict[str, Callable[[CompiledGraph, str], None]] = {
    "before_post_grad_graph": _add_nodes,
    "inductor_post_grad_graph": _add_nodes,
    "inductor_output_code": _add_code,
    "inductor_triton_kernel_to_post_grad_nodes": _add_kernels,
    "inductor_provenance_tracking_node_mappings": add_mappings,
    "inductor_provenance_tracking_kernel_stack_traces": add_stacks,
}


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
