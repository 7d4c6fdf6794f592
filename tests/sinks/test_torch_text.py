"""labels="torch" against torch's own emitter: both watch the same program in one process, so that ids are the same."""

from __future__ import annotations

import pytest

from sinks.running import Native, drive
from tiers import before_release

PROGRAM = """
    import os

    import torch
    from torch.autograd.profiler import emit_nvtx

    torch.cuda.synchronize = lambda device=None: None  # emit_nvtx calls it on entry
    stubs = ctypes.CDLL(os.environ["STUBS"])
    stubs.stubs_take.restype = c_char_p
    stubs.stubs_register(1)
    observer = ctypes.CDLL(os.environ["OBSERVER"])
    native.opspan_sink_of.restype = c_void_p
    assert observer.opspan_observer_init((c_void_p * len(SINKS))(*map(native.opspan_sink_of, SINKS))) == 0

    def program():
        a = torch.randn(2, 3, requires_grad=True)
        b = torch.randn(2, 3, requires_grad=True)
        c = torch.nn.Linear(3, 4)(torch.cat([a, b])) * 2.0 + 1
        d = c.view(2, 2, 4)[:, torch.tensor([0, 1])]
        d = d[None, ..., torch.tensor([True, False, True, False])]  # undefined tensors in a list
        e = torch.nn.functional.layer_norm(d, [2], None, None)  # undefined tensors as arguments
        f = torch.stack([e, e]).unbind(0)
        g = torch.einsum("abcd,abcd->a", f[0], f[1])
        torch.ops.aten.index(torch.zeros(3, 3), [None, torch.tensor([1])])
        torch._foreach_add([torch.ones(2), torch.ones(3)], 1.0)
        with torch.profiler.record_function("mine, seq = 7, sizes = [[1]]"):
            torch.zeros(0).sum()
        torch.tensor(3.0).item()
        (grad,) = torch.autograd.grad(g.sum() * d.pow(2).sum(), a, create_graph=True)
        grad.pow(2).sum().backward()
        torch.nn.LSTM(3, 2)(torch.randn(2, 1, 3))[0].sum().backward()

    shapes = bool(int(os.environ["SHAPES"]))
    assert start_nvtx(TORCH) == TORCH
    assert observer.opspan_observer_attach(NVTX, 2 if shapes else 0) == 0
    taken()
    with emit_nvtx(record_shapes=shapes):
        program()
    observer.opspan_observer_detach(NVTX)
    print(taken(), end="")
    print("-----")
    print(stubs.stubs_take().decode(), end="")
"""


@pytest.mark.slow
@pytest.mark.parametrize("shapes", before_release([True, False], kept=1))
def test_every_text_is_torchs_byte_for_byte(native: Native, shapes: bool) -> None:
    output = drive(
        native,
        PROGRAM,
        tool="nvtx",
        SHAPES=str(int(shapes)),
        OBSERVER=str(native.observer),
        STUBS=str(native.torch_stubs),
    )

    ours, theirs = output.split("-----\n")
    # thread, push, domain, ascii, text  or  thread, pop, domain
    told = [(call, "".join(rest[2:])) for _, call, *rest in (line.split("\t") for line in ours.splitlines())]
    model = [tuple(line.split("\t", 1)) for line in theirs.splitlines()]
    assert told == model
    texts = [text for call, text in model if call == "push"]
    assert len(texts) > 500
    assert any("aten::cat, seq" in text for text in texts)
    assert any("SumBackward0, seq" in text for text in texts)
    assert any("input_op_ids = [(" in text for text in texts) == shapes
