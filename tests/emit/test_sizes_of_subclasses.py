"""Sizes of tensors of Python's classes: known without a call of their __torch_dispatch__."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opspan
from emit.running import forked, told, under_collectors

pytest.importorskip("torch")

# Policies are what _make_wrapper_subclass takes; each counts the calls that reach __torch_dispatch__, by name.
PROGRAM = """
import collections, json, sys, warnings, torch, opspan
from torch.utils._pytree import tree_leaves, tree_map
from opspan.profiler import profile
warnings.simplefilter("ignore")
calls = collections.Counter()
class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner, options):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device, **options
        )
    def __init__(self, inner, options):
        self.inner, self.options = inner, options
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        calls[str(function)] += 1
        options = next(arg.options for arg in tree_leaves(args) if isinstance(arg, cls))
        bare = lambda value: value.inner if isinstance(value, cls) else value
        found = function(*tree_map(bare, args), **tree_map(bare, kwargs or {}))
        return cls(found, options) if type(found) is torch.Tensor else found
def run(session, options):
    a, b = Wrapped(torch.ones(3, 4), options), Wrapped(torch.ones(4, 5).t().contiguous().t(), options)
    calls.clear()
    with session:
        a @ b
        torch.cat([a, a])
        a + 1
    return dict(calls)
sessions = {
    "none": lambda: opspan.record(enabled=False),
    "torch": lambda: torch.autograd.profiler.emit_itt(record_shapes=True),
    "record": lambda: opspan.record(record_shapes=True),
    "memory": lambda: opspan.record(record_shapes=True, memory=True, stacks=True),
    "profile": lambda: profile(record_shapes=True, with_flops=True, profile_memory=True),
}
"""
POLICIES: list[dict[str, Any]] = [
    {},
    {"dispatch_sizes_strides_policy": "strides"},
    {"dispatch_sizes_strides_policy": "sizes"},
    {"dispatch_device": True},
    {"dispatch_layout": True},
    {"dispatch_sizes_strides_policy": "sizes", "dispatch_device": True, "dispatch_layout": True},
]


@pytest.mark.parametrize("options", POLICIES, ids=str)
def test_recording_sizes_sends_no_call_to_the_program(options: dict[str, Any]) -> None:
    calls = told(
        PROGRAM
        + f"print(json.dumps({{name: run(make(), json.loads({json.dumps(json.dumps(options))})) "
        + "for name, make in sessions.items()}))"
    )

    assert calls["none"]["aten.mm.default"] == 1
    assert {name: found for name, found in calls.items() if found != calls["none"]} == {}


def test_emitters_send_none_either_and_label_the_sizes(tmp_path: Path) -> None:
    code = PROGRAM + (
        "options = {'dispatch_sizes_strides_policy': 'sizes', 'dispatch_device': True, 'dispatch_layout': True}\n"
        "plain = run(sessions['none'](), options)\n"
        "print([run(make(record_shapes=True), options) == plain for make in (opspan.emit_nvtx, opspan.emit_itt)])"
    )

    done = forked(code, env=under_collectors(tmp_path / "captured"))

    assert done.stdout == "[True, True]\n", done.stderr
    assert "[[3, 4], [4, 5]]" in sizes_of(tmp_path / "captured", "aten::mm")


def test_sizes_that_are_symbols_are_unknown(tmp_path: Path) -> None:
    code = f"""
import torch, opspan
from torch.fx.experimental.proxy_tensor import make_fx
with opspan.record({str(tmp_path / "captured")!r}, record_shapes=True):
    made = make_fx(lambda a, b: a @ b, tracing_mode="symbolic")(torch.ones(3, 4), torch.ones(4, 5))
print(made(torch.ones(2, 3), torch.ones(3, 2)).shape == (2, 2))
"""
    done = forked(code)

    assert done.stdout == "True\n", done.stderr
    assert "[[-1, -1], [-1, -1]]" in sizes_of(tmp_path / "captured", "aten::mm")


def sizes_of(captured: Path, name: str) -> list[str]:
    ranges = opspan.load(captured).ranges
    found = ranges.filter(ranges["name"].cast(pl.String) == name)["sizes"]
    return found.cast(pl.String).drop_nulls().to_list()
