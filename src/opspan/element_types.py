"""Finds the type and size of a tensor's elements by the name that torch, a compiler or a collective library gives the
type.

    type_of("c10::BFloat16") -> ElementType("float", 2, "bf16")
    type_of("long int"), type_of("__int64"), type_of("long long") -> ElementType("integer", 8, None)
    type_of("whatever else") -> None

A trace may have a compiler's name of a C++ type: GCC's `short unsigned int` is `unsigned short` for Clang and MSVC, and
MSVC also writes `struct c10::Half`. It may also have torch's names (Float, Half, float32), or NCCL's names (bf16,
f8e4m3). A name may be any text, so a name may be unknown.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

# Names of the types of non-tensor arguments, as Kineto and torch's IValue write them.
NO_TENSOR = frozenset(
    "Scalar ScalarList GenericList GenericDict None Storage Double ComplexDouble Int UInt SymInt SymFloat SymBool Bool "
    "Tuple String Blob Future Await Device Stream Object PyObject Uninitialized Capsule RRef Quantizer Generator "
    "Enum".split()
) | {""}
TENSOR_LIST = "TensorList"


class ElementType(NamedTuple):
    kind: str  # integer, float or complex
    bytes: int
    precision: str | None = None  # the name of the precision in the tables of device peaks
    values: int = 1  # the number of values packed into one element


DOUBLE, FLOAT = ElementType("float", 8, "fp64"), ElementType("float", 4, "fp32")
HALF, BFLOAT16 = ElementType("float", 2, "fp16"), ElementType("float", 2, "bf16")
FLOAT8, FLOAT4_X2 = ElementType("float", 1, "fp8"), ElementType("float", 1, values=2)
BOOL, INT8, INT64 = ElementType("integer", 1), ElementType("integer", 1, "int8"), ElementType("integer", 8)

_NAMED = {
    **dict.fromkeys(("double", "float64", "f64"), DOUBLE),
    **dict.fromkeys(("float", "float32", "f32"), FLOAT),
    **dict.fromkeys(("half", "float16", "f16"), HALF),
    **dict.fromkeys(("bfloat16", "bf16"), BFLOAT16),
    **dict.fromkeys(("char", "byte"), INT8),
    "float4_e2m1fn_x2": FLOAT4_X2,
    "bool": BOOL,
}
_COMPLEX = {"complexhalf": 4, "complex32": 4, "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16}
_OF_MSVC = re.compile(r"\b(struct|class|enum) ")
_SCOPES = re.compile(r"\b(c10|at|torch)(::|\.)")
_FLOAT8 = re.compile(r"float8_e[0-9]m[0-9]\w*|f8e[0-9]m[0-9]")
_SIZED = re.compile(r"q?u?int(8|16|32|64)(_t)?|__int(8|16|32|64)|[iu](8|16|32|64)|bits(8|16)")
# Types smaller than a byte. An element of such a type takes one byte in torch, and this byte may hold several values.
_IN_A_BYTE = re.compile(r"dummy_u?int1_7_t<[1-7]u?>|u?int[1-7]|quint[24]x[24]|bits[124]x[248]")
_INTEGER_WORDS = frozenset(("signed", "unsigned", "short", "int", "long", "__int64"))


@lru_cache(1024)
def type_of(name: str) -> ElementType | None:
    """Returns the type that has this name, or None if the name is unknown."""
    plain = _SCOPES.sub("", _OF_MSVC.sub("", name.lower()))
    if plain.startswith("complex<") and plain.endswith(">"):
        part = _NAMED.get(plain[len("complex<") : -1])
        return ElementType("complex", 2 * part.bytes) if part in (DOUBLE, FLOAT, HALF) else None
    if plain in _COMPLEX:
        return ElementType("complex", _COMPLEX[plain])
    return _NAMED.get(plain) or _integer(plain) or (FLOAT8 if _FLOAT8.fullmatch(plain) else None)


def _integer(plain: str) -> ElementType | None:
    if _IN_A_BYTE.fullmatch(plain):
        return BOOL
    if sized := _SIZED.fullmatch(plain):
        width = int(next(width for width in sized.group(1, 3, 4, 5) if width)) // 8
        return INT8 if width == 1 and not plain.startswith(("q", "bits")) else ElementType("integer", width)
    words = plain.split()
    if words in (["signed", "char"], ["unsigned", "char"]):
        return INT8
    if not words or not _INTEGER_WORDS.issuperset(words):
        return None
    # MSVC's `long` has only 4 bytes, but torch does not use it.
    return ElementType("integer", 2 if "short" in words else 8 if {"long", "__int64"} & set(words) else 4)


def names_in(text: str | None) -> list[str]:
    """Returns the type names in a JSON text such as ["float", "TensorList", ""]. Raises ValueError for other texts."""
    try:
        names = json.loads(text or "[]")
    except RecursionError as error:
        raise ValueError("brackets that are thousands deep") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of types")
    return names


def is_known(name: str) -> bool:
    """Returns whether opspan can compute with an argument of this type."""
    return name in NO_TENSOR or name in (TENSOR_LIST, "Tensor") or type_of(name) is not None
