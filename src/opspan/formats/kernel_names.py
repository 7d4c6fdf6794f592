"""Makes short names by which kernels can be told apart.

kernel_name(full) -> the kernel's own name: `add` for `void ns::add<float>(float*)`. For a kernel that only
    starts another function, the name of this function, such as cutlass_80_tensorop_s1688gemm_64x64_32x4_tn_align1
    instead of Kernel2
kernel_names(full_names) -> kernel_name of each
told_apart(names, full_names) -> a tool's short names, with kernel_name where a tool's name says too little
"""

from __future__ import annotations

import re

import polars as pl

from opspan.formats.demangle import demangled, is_mangled, short_name

# Kernels that run the function of their first template argument, from cutlass, composable kernel, thrust and
# FlashAttention.
_STARTERS = frozenset(
    {"Kernel", "Kernel2", "device_kernel", "kentry", "_kernel_agent", "ParallelForAgent", "enable_sm90_or_later"}
    | {"enable_3x_kernel_for_sm9x"}
)
# Names that say too little without their namespace.
_IN_NAMESPACE = frozenset({"kernel", "functor"})
_SHAPE = re.compile(r"GemmShape<(?:\(int\))?(\d+), ?(?:\(int\))?(\d+), ?(?:\(int\))?(\d+)>")
_INSTRUCTION = re.compile(r"MMA_(\d+x\d+x\d+_[A-Z0-9]+)")
_DEEPEST = 4  # maximum number of starters to follow, if each starts the next one; in thrust there are two
_NUMBER = re.compile(r"(?:\([^()]*\))?-?\d+[ul]*|true|false")
_MOST_NAMES = 64  # maximum number of parts of a function's name; its namespaces are parts, too
_LENGTH = re.compile(r"[0-9]{1,5}")
_TYPE = re.compile(r"NS?[0-9A-Z]*?_?(?=[0-9])")  # the begin of a nested name among mangled template arguments


def kernel_name(full: str) -> str:
    """Returns the short name. A text that is not a function's name is returned unchanged."""
    text = demangled(full)
    if is_mangled(text):
        return _of_mangled(text)
    shape = None
    for _ in range(_DEEPEST):
        name = short_name(text)
        started = _first_type(text, name) if name in _STARTERS else None
        if started is None:
            break
        text = started
        shape = shape or _SHAPE.search(text)
    if name in _IN_NAMESPACE:
        before = re.search(rf"(\w+)::{name}\b", text)
        return f"{before[1]}::{name}" if before else name
    if shape and "gemm" in name.lower():
        return f"{name}_{'x'.join(shape.groups())}"
    return _with_instruction(name, text)


def kernel_names(full_names: pl.Series) -> pl.Series:
    """Returns the short names as Categorical. Each distinct name is processed only once."""
    known = full_names.unique().drop_nulls()
    short = pl.Series([kernel_name(name) for name in known.cast(pl.String)], dtype=pl.String).cast(pl.Categorical)
    return full_names.replace_strict(known, short, default=None, return_dtype=pl.Categorical)


def told_apart(names: pl.Series, full_names: pl.Series) -> pl.Series:
    """Returns the names, but replaces a name that says too little (one in _STARTERS or _IN_NAMESPACE) by the result of
    kernel_name."""
    starters = pl.Series([*_STARTERS, *_IN_NAMESPACE], dtype=pl.Categorical)
    is_starter = names.is_in(starters.implode()) & full_names.is_not_null()
    if not is_starter.any():
        return names
    return names.scatter(is_starter.arg_true(), kernel_names(full_names.filter(is_starter)))


def _first_type(text: str, name: str) -> str | None:
    """Looks at the arguments of the template `name`. Returns the first argument that is a type, not a number."""
    begin = text.find(f"{name}<") + len(name)
    if begin < len(name):
        return None
    depth, since = 0, begin + 1
    for place in range(begin, len(text)):
        depth += (text[place] in "<([{") - (text[place] in ">)]}")
        if depth == 0 or (depth == 1 and text[place] == ","):
            argument = text[since:place].strip()
            if argument and not _NUMBER.fullmatch(argument):
                return argument
            since = place + 1
        if depth == 0:
            break
    return None


def _of_mangled(text: str) -> str:
    """Returns the short name of a function that the demangler does not understand, because its types are too new."""
    is_nested = text.startswith("_ZN")  # without namespaces, only one name precedes the types
    name, past = _sources(text, len("_ZN" if is_nested else "_Z"), most=_MOST_NAMES if is_nested else 1)
    for _ in range(_DEEPEST):
        if name not in _STARTERS or (begin := _TYPE.search(text, past)) is None:
            break
        started, past = _sources(text, begin.end())
        name = started or name
    return _with_instruction(name, text) if name else text


def _with_instruction(name: str, text: str) -> str:
    """Adds the GPU instruction to the name of a cutlass 3 GEMM. The instruction shows the kernel's types and shapes."""
    instruction = _INSTRUCTION.search(text) if name == "GemmUniversal" else None
    return f"{name}_{instruction[1]}" if instruction else name


def _sources(text: str, at: int, most: int = _MOST_NAMES) -> tuple[str | None, int]:
    """Reads names from `at` on, each preceded by its length. Returns the last name and its end."""
    name = None
    for _ in range(most):
        length = _LENGTH.match(text, at)
        if length is None or length.end() + int(length[0]) > len(text):
            break
        at = length.end() + int(length[0])
        name = text[length.end() : at]
    return name, at
