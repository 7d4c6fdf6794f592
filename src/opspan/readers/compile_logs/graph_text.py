"""Reads the text of a graph: for each node, the op, and the line of the program from which the node came.

    # File: model.py:9 in forward, code: y = self.fc(x)
    permute: "f32[64, 64][1, 64]cpu" = torch.ops.aten.permute.default(primals_1, [1, 0]);  primals_1 = None

    # No stacktrace found for following nodes
    mm_default: "f32[10, 30][30, 1]cuda:0" = torch.ops.aten.mm.default(mul, arg4_1);  mul = arg4_1 = None

A comment with a line of the program stands above the nodes that came from this line. In graphs before autograd, a node
may also call a Python function (torch.relu) or use an operator (x * 2).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from opspan.fused_names import op_of
from opspan.readers.compile_logs.stacks import Place

_LONGEST = 8_192  # limit on the characters of a line that are parsed
_FILE = re.compile(r"# File: ([^\n]{1,4096}?):(\d{1,9}) in ([^,\n]{1,1024}), code: ")
_NO_FILE = "# No stacktrace found"
_NODE = re.compile(r'(\w{1,1024})(?:: "[^"]*")? = (.*)')
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
_OPERATOR = re.compile(r"-?[\w.]+ (\*\*|//|<<|>>|[-+*/@%&|^<>]|[=<>!]=) ")
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "@": "matmul", "**": "pow", "//": "floordiv"}


class Node(NamedTuple):
    op: str | None
    place: Place | None


def nodes_of(text: str) -> dict[str, Node]:
    """Returns the nodes of the graph by name."""
    nodes: dict[str, Node] = {}
    place: Place | None = None
    for line in text.splitlines():
        line = line[:_LONGEST].strip()
        if line.startswith("#"):
            if match := _FILE.match(line):
                place = Place(match[1], int(match[2]), match[3])
            elif line.startswith(_NO_FILE):
                place = None
        elif match := _NODE.match(line):
            nodes[match[1]] = Node(_called(match[2]), place)
    return nodes


def _called(expression: str) -> str | None:
    if match := _CALL.match(expression):
        return op_of(match[1])
    if match := _OPERATOR.match(expression):
        return _OPERATORS.get(match[1], match[1])
    return None
