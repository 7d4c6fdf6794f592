"""Arguments of annotations: payloads, names, categories; the same with and without a listener."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from emit.running import HEAD, program, python

PAYLOADS = [
    ("2.5", 2.5),
    ("True", 1),
    ("2**63", 2**63),
    ("fractions.Fraction(5, 2)", 2.5),
    ("decimal.Decimal('2.5')", 2.5),
    ("numpy.float32(2.5)", 2.5),
    ("numpy.uint8(7)", 7),
    ("numpy.bool_(True)", 1),
    ("numpy.array(2.5)", 2.5),
    ("numpy.array([3])", 3),
    ("torch.tensor(2.5)", 2.5),
    ("torch.tensor(7)", 7),
    ("torch.tensor(True)", 1),
    ("torch.tensor([2.5], requires_grad=True) * 1", 2.5),
    ("torch.tensor(2.5, dtype=torch.bfloat16)", 2.5),
    ("torch.nn.Parameter(torch.tensor(2.5))", 2.5),
    # It has no value, here or now: the range goes without.
    ("torch.empty((), device='meta')", None),
    ("FakeTensorMode().from_tensor(torch.tensor(2.5))", None),
    # Refused, and not only when somebody listens.
    ("'text'", "TypeError"),
    ("2.5 + 1j", "TypeError"),
    ("[1]", "TypeError"),
    ("2**70", "ValueError"),
    ("-2**63 - 1", "ValueError"),
    ("10**5000", "ValueError"),
    ("fractions.Fraction(10**400)", "ValueError"),
    ("numpy.array([1, 2])", "TypeError"),
    ("numpy.datetime64('2020-01-01')", "TypeError"),
    ("torch.tensor([1, 2])", "TypeError"),
    ("torch.tensor(1j)", "TypeError"),
]


@pytest.mark.slow
def test_a_payload_is_taken_or_refused_whether_or_not_somebody_listens(captured: Path) -> None:
    pytest.importorskip("torch")
    body = f"""
import decimal, fractions, numpy, torch
from torch._subclasses.fake_tensor import FakeTensorMode
for text in {[text for text, _ in PAYLOADS]!r}:
    payload = eval(text)
    try:
        with opspan.annotate(text, payload=payload): pass
    except (TypeError, ValueError) as error: print(type(error).__name__, end=" ")
    else: print("taken", end=" ")
"""
    silent, listened = python(HEAD + body), program(body, captured)

    expected = [said if isinstance(said, str) else "taken" for _, said in PAYLOADS]
    assert silent.split() == listened.split() == expected
    rows = opspan.load(captured).ranges.filter(source="nvtx").iter_rows(named=True)
    columns = ("payload_int", "payload_uint", "payload_float")
    found = {row["name"]: next((row[column] for column in columns if row[column] is not None), None) for row in rows}
    assert found == {text: value for text, value in PAYLOADS if not isinstance(value, str)}


@pytest.mark.slow
def test_a_payload_that_is_being_traced_is_no_part_of_what_is_made() -> None:
    pytest.importorskip("torch")
    body = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        with opspan.annotate("a", payload=x.shape[0]), opspan.annotate("b", payload=x.sum()): return x * 2
batch = torch.export.Dim("batch")
for strict in (False, True):
    program = torch.export.export(Model(), (torch.ones(3),), dynamic_shapes={"x": {0: batch}}, strict=strict)
    print(program.module()(torch.ones(5)).tolist())
def work(x):
    with opspan.annotate("a", payload=x): return x * 2
print(torch.vmap(work)(torch.ones(2)).tolist(), torch.jit.trace(work, torch.ones(()))(torch.tensor(3.)).item())
print(torch.fx.symbolic_trace(work)(torch.tensor(3.)).item())
"""
    twice = [2.0] * 5
    # torch.jit.trace is deprecated, as a FutureWarning from 2.15 on.
    code = "import warnings; warnings.filterwarnings('ignore', '.*torch.jit')\n" + HEAD + body
    assert python(code).splitlines() == [str(twice), str(twice), "[2.0, 2.0] 6.0", "6.0"]


@pytest.mark.parametrize(
    "call",
    [
        "opspan.record_function(5)",
        "opspan.annotate('a', category=5)",
        "opspan.mark(5)",
        "opspan.nvtx.range_push(5)",
        "opspan.nvtx.range_start(5)",
        "opspan.itt.mark(5)",
        "opspan.itt.range(5)",
    ],
)
def test_what_is_no_text_is_refused_whether_or_not_somebody_listens(call: str) -> None:
    with pytest.raises(TypeError, match=r"is text, not int"):
        eval(call)
