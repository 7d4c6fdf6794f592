"""Reads the comments in the code that the compiler generated. The comments say which ops a kernel was made from, even
if the compiler wrote no node mappings.

    # AOT ID: ['0_forward']
    # Topologically Sorted Source Nodes: [x, x_1], Original ATen: [aten.addmm, aten.relu]
    # Graph fragment:
    #   %relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%addmm,), kwargs = {})
    triton_poi_fused_addmm_relu_0 = async_compile.triton('triton_poi_fused_addmm_relu_0', '''
    ...
            # Topologically Sorted Source Nodes: [y], Original ATen: [aten.t, aten.addmm]
            # [Provenance debug handles] extern_kernels.addmm:1
            extern_kernels.addmm(primals_2, primals_3, ...)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_LONGEST = 16_384  # limit on the characters of a line that are parsed
_AOT_ID = re.compile(r"# AOT ID: \['([\w.-]{1,200})'\]")
_NODES = re.compile(
    r"(?:#|//) (?:Topologically Sorted |Unsorted )?Source Nodes: \[([^\]]*)\], Original ATen: \[([^\]]*)\]"
)
_FRAGMENT = re.compile(r"(?:#|//)\s+%(\w+) : .*?call_function\[target=")
_DEFINED = re.compile(r"(\w+) = async_compile\.\w+\(")
_HANDLE = re.compile(r"(?:#|//) \[Provenance debug handles\] (\S+?):(\d{1,9})$")
_EXTERN = re.compile(r"(?:\w+ = )?((?:extern_kernels|torch\.ops|aten)\.[\w.]+)\(")
_CALLED = re.compile(r"(\w+)(?:\.run)?\(")


class Sources(NamedTuple):
    ops: tuple[str, ...] = ()  # original ATen ops
    source_nodes: tuple[str, ...] = ()  # nodes of the graph before autograd
    nodes: tuple[str, ...] = ()  # nodes of the compiled graph


class CodeCall(NamedTuple):
    kernel: str
    number: int | None  # the number in the call's debug handle
    sources: Sources


@dataclass
class OutputCode:
    aot_id: str | None = None
    kernels: dict[str, Sources] = field(default_factory=dict)
    calls: list[CodeCall] = field(default_factory=list)


def code_of(text: str) -> OutputCode:
    code = OutputCode()
    sources, fragment = Sources(), list[str]()
    handle: tuple[str, int] | None = None
    for raw in text.splitlines():
        line = raw[:_LONGEST].strip()
        if line.startswith(("#", "//")):
            if match := _NODES.match(line):
                sources, fragment = Sources(_ops(match[2]), _listed(match[1])), []
            elif match := _FRAGMENT.match(line):
                fragment.append(match[1])
            elif match := _HANDLE.match(line):
                handle = match[1], int(match[2])
            elif code.aot_id is None and (match := _AOT_ID.match(line)):
                code.aot_id = match[1]
        elif not raw[:1].isspace():
            if match := _DEFINED.match(line):
                code.kernels[match[1]] = sources._replace(nodes=tuple(fragment))
                sources, fragment = Sources(), []
        elif (kernel := _called(line, code.kernels)) is not None:
            number = handle[1] if handle is not None and handle[0] == kernel else None
            code.calls.append(CodeCall(kernel, number, sources))
            sources, fragment, handle = Sources(), [], None
    return code


def _called(line: str, kernels: dict[str, Sources]) -> str | None:
    if match := _EXTERN.match(line):
        return match[1]
    match = _CALLED.match(line)
    return match[1] if match is not None and match[1] in kernels else None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _ops(text: str) -> tuple[str, ...]:
    """Returns the names of ops as in traces: aten::mm for aten.mm."""
    return tuple(dict.fromkeys(name.replace(".", "::", 1) for name in _listed(text) if name))
