"""Combines the texts that the compiler wrote about one graph into rows of the table `provenance`.

A graph is a part of the program that was compiled as one unit, for the forward or the backward. Its texts are:

    the graph before autograd   the functions that the program called, each with the line of the call
    the compiled graph          nodes, each with the program's line; nodes that replaced a pattern have no line
    node mappings               kernel -> nodes of the compiled graph, and node -> nodes before autograd
    stack traces                kernel -> stacks of the program's functions
    the generated code          kernels and their calls, with comments

In mappings and stack traces, the name of a kernel may end in the number of a call: `extern_kernels.mm:2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opspan.fused_names import extern_op, fused_ops
from opspan.readers.compile_logs.graph_text import Node
from opspan.readers.compile_logs.module_paths import Modules
from opspan.readers.compile_logs.output_code import CodeCall, OutputCode, Sources
from opspan.readers.compile_logs.stacks import Place, Stack, stack_of

Row = dict[str, Any]
_SEPARATOR = "; "
_MOST_OF_A_KERNEL = 10_000  # limit on the nodes, and on the stacks, of one kernel call


@dataclass
class CompiledGraph:
    compile_id: str | None = None
    attempt: int | None = None
    aot_id: str | None = None
    cache_key: str | None = None
    is_from_cache: bool = False
    before: dict[str, Node] = field(default_factory=dict)  # nodes of the graph before autograd
    nodes: dict[str, Node] = field(default_factory=dict)
    to_before: dict[str, list[str]] = field(default_factory=dict)  # compiled node -> nodes before autograd
    modules_before: Modules = field(default_factory=Modules)
    modules: dict[str, str] = field(default_factory=dict)  # compiled node -> path of its module
    kernel_nodes: dict[str, list[str]] = field(default_factory=dict)
    kernel_before: dict[str, list[str]] = field(default_factory=dict)  # kernel -> nodes before autograd
    kernel_stacks: dict[str, list[str]] = field(default_factory=dict)
    code: OutputCode = field(default_factory=OutputCode)

    @property
    def phase(self) -> str | None:
        end = (self.aot_id or self.code.aot_id or "").rpartition("_")[2]
        return end if end in ("forward", "backward", "inference") else None

    @property
    def has_foreign_lines(self) -> bool:
        """True if the compiled graph came from torch's cache, and has source lines of another program or of another
        version of this program. The graph before autograd (`before`) is always from this run. So a line is foreign if
        `before` lacks it."""
        here = {place[:2] for node in self.before.values() if (place := node.place)}
        if not self.is_from_cache or not here:
            return False
        stacks = (stack_of(text) for texts in self.kernel_stacks.values() for text in texts[:_MOST_OF_A_KERNEL])
        places = {stack.innermost for stack in stacks if stack} | {node.place for node in self.nodes.values()}
        return any(place[:2] not in here for place in places if place)

    def rows(self) -> list[Row]:
        """Returns the rows of all kernel calls: at least one for each node, and one for each stack that is not added to
        the row of a node. A call without nodes and stacks has one row."""
        if self.has_foreign_lines:
            nodes = {name: node._replace(place=None) for name, node in self.nodes.items()}
            stacks: dict[str, list[str]] = {kernel: [] for kernel in self.kernel_stacks}
            return replace(self, is_from_cache=False, nodes=nodes, kernel_stacks=stacks).rows()
        written = dict.fromkeys([*self.kernel_nodes, *self.kernel_stacks])
        kernels = self._of_artifacts(written) if written else self._of_code()
        whole = {
            "compile_id": self.compile_id,
            "attempt": self.attempt,
            "aot_id": self.aot_id or self.code.aot_id,
            "cache_key": self.cache_key,
            "phase": self.phase,
        }
        return [whole | row for rows in kernels for row in rows]

    def _of_artifacts(self, keys: Iterable[str]) -> Iterator[list[Row]]:
        numbered: dict[tuple[str, int | None], Sources] = {
            (call.kernel, call.number): call.sources for call in self.code.calls if call.number is not None
        }
        for key in keys:
            kernel, number = split_number(key)
            sources = numbered.get((kernel, number)) or self.code.kernels.get(kernel) or Sources()
            nodes = self.kernel_nodes.get(key, [])[:_MOST_OF_A_KERNEL]
            stacks = [one for one in map(stack_of, self.kernel_stacks.get(key, [])[:_MOST_OF_A_KERNEL]) if one]
            rows = with_stacks(self._rows_of(nodes), stacks)
            if not nodes and (called := self.kernel_before.get(key)):
                rows = [row | {"written_as": _SEPARATOR.join(called)} for row in rows]
            yield self._finished(kernel, number, rows, sources.ops, "artifact")

    def _of_code(self) -> Iterator[list[Row]]:
        for order, call in enumerate(self.code.calls, 1):
            definition = self.code.kernels.get(call.kernel, Sources())
            rows = self._rows_of(definition.nodes)
            if not any(row.get("file") for row in rows):
                rows += self._rows_before(_own_source_nodes(call))
            ops = call.sources.ops or definition.ops
            is_known = bool(rows or ops)
            known_by = "code" if is_known else "name"
            yield self._finished(call.kernel, call.number or order, rows, ops, known_by)

    def _finished(
        self, kernel: str, number: int | None, rows: list[Row], ops: tuple[str, ...], known_by: str
    ) -> list[Row]:
        is_cut = False
        if (own := extern_op(kernel)) is not None:
            ops = (own,)  # the comments on an extern kernel also name the ops of its inputs
        elif not ops and (named := fused_ops(kernel)) is not None:
            ops, is_cut = named
        whole = {
            "kernel": kernel,
            "call_number": number,
            "source_ops": _SEPARATOR.join(sorted(ops)) or None,
            "is_cut": is_cut,
            "known_by": known_by,
        }
        return [row | whole for row in rows or [{}]]

    def _rows_of(self, names: Iterable[str]) -> list[Row]:
        rows: list[Row] = []
        for name in names:
            node = self.nodes.get(name, Node(None, None))
            before = [self.before[one] for one in self.to_before.get(name, []) if one in self.before]
            called = _SEPARATOR.join(dict.fromkeys(one.op for one in before if one.op)) or None
            row = {"node": name, "op": node.op, "written_as": called, "module_path": self._module_of(name)}
            places = [node.place] if node.place else dict.fromkeys(one.place for one in before if one.place)
            rows += [row | _of_place(place) for place in places] or [row]
        return rows

    def _module_of(self, node: str) -> str | None:
        path = self.modules.get(node)
        if path is None:
            known = {self.modules_before.paths.get(one) for one in self.to_before.get(node, ())}
            path = known.pop() if len(known) == 1 else None
        return self.modules_before.name_of(path) if path is not None else None

    def _rows_before(self, names: Iterable[str]) -> list[Row]:
        nodes = [self.before[name] for name in names if name in self.before]
        return [{"written_as": node.op} | _of_place(node.place) for node in nodes if node.place]


def split_number(key: str) -> tuple[str, int | None]:
    kernel, colon, number = key.rpartition(":")
    if colon and kernel and number.isascii() and number.isdigit() and len(number) < 10:
        return kernel, int(number)
    return key, None


def with_stacks(rows: list[Row], stacks: list[Stack]) -> list[Row]:
    """Adds each stack to the rows of the nodes at the stack's innermost line. A stack gets a separate row if no node is
    at this line. Stacks with the same innermost line also get separate rows, because it is unknown which of these
    stacks a node has."""
    by_line: dict[Place, list[Stack]] = {}
    for stack in dict.fromkeys(stacks):
        by_line.setdefault(stack.innermost, []).append(stack)
    added: set[Place] = set()
    result = []
    for row in rows:
        place = _place_of(row)
        ends_here = by_line.get(place, []) if place is not None else []
        if place is not None and len(ends_here) == 1:
            added.add(place)
            result.append(row | _of_stack(ends_here[0]))
        else:
            result.append(row | _of_place(None) if ends_here else row)
    rest = [stack for line, some in by_line.items() if line not in added for stack in some]
    return [*result, *map(_of_stack, rest)]


def _of_stack(stack: Stack) -> Row:
    return _of_place(stack.place) | {"stack": stack.text}


def _place_of(row: Mapping[str, Any]) -> Place | None:
    return Place(row["file"], row["line"], row["function"]) if row.get("file") else None


def _of_place(place: Place | None) -> Row:
    if place is None:
        return {"file": None, "line": None, "function": None}
    return {"file": place.file, "line": place.line, "function": place.function}


def _own_source_nodes(call: CodeCall) -> tuple[str, ...]:
    """Returns the source nodes of a call. The comment on an extern kernel may list nodes of the kernel's inputs too. So
    the nodes of an extern kernel are known only if the comment lists a single node."""
    nodes = call.sources.source_nodes
    return nodes if len(nodes) == 1 or extern_op(call.kernel) is None else ()
