"""Makes the text of docs/examples/README.md from the first line and the first command of each example's docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
COMMAND = re.compile(r"^    (python docs/examples/\S.*?)(?:  .*)?$", re.MULTILINE)
HEAD = """\
# Examples

Each example is one file that runs on a CPU without any change: copy the part that you need. It writes its files to the
folder that it is started in. Its docstring says more.

| example | what it does | type |
| --- | --- | --- |
"""


def text() -> str:
    return HEAD + "".join(_row(path) for path in sorted(EXAMPLES.glob("*.py")))


def _row(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    command = COMMAND.search(docstring)
    if command is None:
        raise SystemExit(f"{path}: expected a docstring with a line `    python docs/examples/{path.name}`")
    return f"| [{path.name}]({path.name}) | {docstring.splitlines()[0]} | `{command[1]}` |\n"
