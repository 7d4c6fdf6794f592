"""Names of types of elements: torch's own sizes as the oracle, and those that other compilers give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emit.running import forked
from opspan.element_types import NO_TENSOR, is_known, type_of

# Records a tensor of each dtype of the installed torch; prints torch.profiler's name and torch's size of it.
RECORDED = """
import json
import warnings
import torch
from torch.profiler import profile

warnings.simplefilter("ignore")
found = {}
for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
    tensor = torch.empty(4, dtype=dtype)
    with profile(record_shapes=True) as profiled:
        tensor.view(2, 2)
    [name] = {event.input_dtypes[0] for event in profiled.events() if event.name == "aten::view"}
    found[str(dtype)] = [name, dtype.itemsize, dtype.is_complex, dtype.is_floating_point]
print("found " + json.dumps(found))
"""


def test_every_type_of_torch_has_torchs_size(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    lines = forked(RECORDED, cwd=tmp_path).stdout.splitlines()
    found = json.loads(next(line for line in lines if line.startswith("found ")).removeprefix("found "))

    assert len(found) > 20
    for dtype, (name, size, is_complex, is_float) in found.items():
        for text in (name, dtype):
            known = type_of(text)
            assert known is not None, text
            assert known.bytes == size, text
            assert known.kind == ("complex" if is_complex else "float" if is_float else "integer"), text


@pytest.mark.parametrize(
    ("names", "size"),
    [
        ("bool, char, signed char, unsigned char, int8_t, u8, Byte, c10::bits8, c10::qint8, QUInt4x2", 1),
        ("c10::Float8_e4m3fn, struct c10::Float8_e5m2, f8e4m3, c10::Float4_e2m1fn_x2, c10::dummy_uint1_7_t<7>", 1),
        ("short, short int, unsigned short, short unsigned int, c10::Half, struct c10::BFloat16, bits16, UInt16", 2),
        ("int, unsigned int, unsigned, float, Float, i32, uint32_t, class c10::complex<struct c10::Half>", 4),
        ("long, long int, long unsigned int, unsigned long, long long, long long unsigned int, __int64", 8),
        ("unsigned __int64, unsigned long long, double, c10::complex<float>, ComplexFloat, i64, torch.float64", 8),
        ("c10::complex<double>, class c10::complex<double>, complex128", 16),
    ],
)
def test_names_of_other_compilers_and_libraries(names: str, size: int) -> None:
    assert {name: type_.bytes if (type_ := type_of(name)) else None for name in names.split(", ")} == dict.fromkeys(
        names.split(", "), size
    )


@pytest.mark.parametrize(
    "name", ["", "hello", "long double", "c10::complex<int>", "complex<" * 9999, "\x1b[2J", "int " * 99 + "x"]
)
def test_other_text_has_no_size(name: str) -> None:
    assert type_of(name) is None


def test_kinds_of_arguments_that_are_no_tensors_are_known() -> None:
    assert all(map(is_known, NO_TENSOR))
    assert is_known("TensorList")
    assert not is_known("__torch__.torch.classes.mine.Thing")
