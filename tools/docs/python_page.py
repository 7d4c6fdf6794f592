"""Makes the reference in docs/python.md from the docstrings and types of opspan's public names. griffe reads them.

The website (mkdocs.yml) does not show this reference. It shows the reference that mkdocstrings makes, also with griffe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import schema_page

import opspan
from opspan.analysis.kernel_rows import COLUMNS

SRC = Path(__file__).resolve().parents[2] / "src"
LONGEST = 100  # the maximum length of a signature on one line

# For each heading, the public names below it. If a name in __all__ is missing here, tools/docs fails.
NAMES = {
    "Reading": ("load", "Trace", "Metadata", "merge", "load_vtune_report", "register_flops"),
    "Many files": ("load_many", "Ranks"),
    "Torch's list of events": (
        "load_nsys",
        "load_nvprof",
        "load_kineto",
        "load_rocpd",
        "load_unitrace",
        "load_vtune",
        "parse_nvprof_trace",
    ),
    "Labelling and recording": ("annotate", "mark", "record_function", "emit_nvtx", "emit_itt", "record"),
    "Schedules, attaching, sampling": ("schedule", "ProfilerAction", "listen", "emit_pyroscope"),
    "Errors": ("OpspanError",),
}
NOT_CALLED = ("Trace", "Ranks", "ProfilerAction", "OpspanError")  # without a signature, because users do not call them
MODULES = {
    "profiler": "torch.profiler's names ([profiler.md](profiler.md)).",
    "autograd_profiler": "torch.autograd.profiler's names ([events.md](events.md)).",
    "nvtx": "torch.cuda.nvtx's names: your own ranges, to NVTX only ([emit.md](emit.md)).",
    "itt": "torch.profiler.itt's names: your own ranges, to ITT only ([emit.md](emit.md)).",
    "errors": "Every exception that opspan raises on purpose; the tree of them is at the top of the file.",
    "analysis": "The functions that fill the analysed columns ([analysis.md](analysis.md)).",
    "views": "The outputs and the answers of the command line ([outputs.md](outputs.md), [json.md](json.md)).",
}

COLUMNS_OF_KERNELS = """\
## Columns of kernels

Times are integer nanoseconds on the clock of the first rank. A value is null if the trace does not say it.

"""


def text() -> str:
    rows = "".join(map(schema_page.row, COLUMNS))
    return f"{COLUMNS_OF_KERNELS}{schema_page.COLUMNS_HEAD}{rows}\n{_reference()}"


def _reference() -> str:
    import griffe

    package: Any = griffe.load("opspan", search_paths=[SRC], docstring_parser="google", allow_inspection=False)
    listed = [*(name for names in NAMES.values() for name in names), *MODULES]
    if unlisted := set(opspan.__all__) ^ set(listed):
        raise SystemExit(f"tools/docs: NAMES of python_page.py and opspan.__all__ differ in {', '.join(unlisted)}")
    parts = []
    for heading, names in NAMES.items():
        parts.append(f"## {heading}\n\n")
        for name in names:
            parts += _entry(package[name].final_target, f"opspan.{name}")
    parts.append("## Modules\n\n| module | what is in it |\n| --- | --- |\n")
    parts += [f"| `opspan.{name}` | {sentence} |\n" for name, sentence in MODULES.items()]
    return "".join(parts)


def _entry(thing: Any, name: str) -> Iterator[str]:
    """Yields a heading, the signature and the docstring. For a class, also yields its public members."""
    if not thing.is_class:
        yield f"### {name}\n\n{_signature(thing.signature(name=name))}{_words(thing)}"
        return
    constructor = thing.members.get("__init__", thing)
    call = "" if thing.name in NOT_CALLED else _signature(constructor.signature(name=name, return_type=False))
    yield f"### {name}\n\n{call}{_words(thing)}"
    for member in _members(thing):
        is_call = member.is_function
        call = _signature(member.signature(name=member.name) if is_call else f"{member.name}: {member.annotation}")
        yield f"#### {name}.{member.name}\n\n{call}{_words(member)}"


def _members(class_: Any) -> Iterator[Any]:
    """Yields the public methods and properties that have a docstring. Inherited members come last."""
    for member in sorted(class_.all_members.values(), key=lambda member: member.name not in class_.members):
        target = member.final_target if member.is_alias else member
        is_shown = target.docstring and (target.is_function or "property" in target.labels)
        if is_shown and not member.name.startswith("_"):
            yield target


def _signature(call: str) -> str:
    """Returns the signature as Markdown, without `self`. If it does not fit on one line, each parameter has a line."""
    call = re.sub(r"\((self|cls)(, )?", "(", call)
    if len(call) > LONGEST:
        begin, depth, lines = call.index("(") + 1, 0, [""]
        for letter in call[begin : call.rindex(")")]:
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and not depth:
                lines.append("")
            else:
                lines[-1] += letter
        parameters = "".join(f"    {line.strip()},\n" for line in lines)
        call = f"{call[:begin]}\n{parameters}{call[call.rindex(')') :]}"
    return f"```\n{call}\n```\n\n"


def _words(thing: Any) -> str:
    """Returns the docstring as Markdown. Arguments, attributes and errors become lists."""
    parts = []
    for section in thing.docstring.parsed if thing.docstring else ():
        if section.kind.value == "text":
            parts.append(f"{section.value}\n\n")
        else:
            for row in section.value:
                name = getattr(row, "name", None) or row.annotation
                parts.append(f"- `{name}`: {' '.join(row.description.split())}\n")
            parts.append("\n")
    return re.sub(r"\bdocs/(\w+\.md)", r"[\1](\1)", "".join(parts))
