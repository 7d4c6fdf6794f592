"""The native writers against tests/data/labels.json, the examples that labels.py is held to as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sinks.running import Native, drive, lines_of

EXAMPLES = json.loads((Path(__file__).parents[1] / "data" / "labels.json").read_text())
KINDS = {"op": 1, "backward": 2, "engine": 3, "user": 4, "module": 5, "step": 6}
# In the examples the main thread is 800, and 812 is another one. Torch's own numbers for them, and one for nobody:
THREADS = {800: 1, 812: 2, 0: 3}

PROGRAM = """
    import json, os, threading
    examples = json.loads(os.environ["EXAMPLES"])
    thread = threading.Thread(target=lambda: (begin(NVTX, 1, "", thread=2), end(NVTX, 1, 2)))
    start_nvtx(globals()[os.environ["FORM"]])
    thread.start()
    thread.join()
    print("other", thread.native_id)
    taken()
    for number, example in enumerate(examples):
        for op, output in example.pop("tensor_sources", ()):
            begin(NVTX, op, "producer")
            end(NVTX, op, outputs=[0] * output + [op * 64])
            taken()
        detail, name = example.pop("detail", None), example.pop("name")
        if detail is None:
            begin(NVTX, number, name, **example)
        else:
            native.opspan_push(own(name, example["kind"], detail=detail.encode()), TO_NVTX)
        print(taken())
"""


def words_of(sizes: list[Any]) -> list[int]:
    """As the observer tells them: a list for a tensor, a list of lists for a list of tensors."""
    words: list[int] = []
    for each in sizes:
        items = each if each and isinstance(each[0], list) else [each]
        words += [2 | len(items) << 32] if items is each else []
        words += [word for item in items for word in (1 | len(item) << 32, *item)]
    return words


def op_of(example: dict[str, Any]) -> dict[str, Any]:
    op = {"name": example["name"], "kind": KINDS[example["kind"]], "op_id": example.get("op_id", 0)}
    op["sequence"] = example.get("seq", -1)
    if "sizes" in example:
        op["sizes"] = words_of(example["sizes"])
    if example["kind"] == "backward":
        op["forward_thread"] = THREADS[example.get("forward_tid", 800)]
    return op


def own_of(example: dict[str, Any]) -> dict[str, Any]:
    detail = example.get("class_name") or example.get("args")
    return {"name": example["name"], "kind": KINDS[example["kind"]], "detail": detail}


def written(native: Native, form: str, given: list[dict[str, Any]]) -> list[str]:
    output = drive(native, PROGRAM, tool="nvtx", FORM=form, EXAMPLES=json.dumps(given))
    other = output.split()[1]
    return [line[2].replace(f"fwd_tid = {other}", "fwd_tid = 812") for line in lines_of(output, ["push"])]


@pytest.fixture(scope="module")
def texts() -> list[dict[str, Any]]:
    return [example for example in EXAMPLES["texts"] if example["written"]]


def test_text_form(native: Native, texts: list[dict[str, Any]]) -> None:
    ops = [example for example in texts if not {"input_op_ids", "class_name", "args"} & example.keys()]
    owns = [example for example in texts if {"class_name", "args"} & example.keys() and "op_id" not in example]

    found = written(native, "TEXT", [op_of(example) for example in ops] + [own_of(example) for example in owns])

    assert len(owns) >= 3
    assert found == [example["text"] for example in ops + owns]


def test_torch_form(native: Native, texts: list[dict[str, Any]]) -> None:
    mine = {"forward_tid", "class_name", "args"}
    examples = [example for example in texts if not mine & example.keys()]
    given, expected = [], []
    for example in examples:
        ids = example.get("input_op_ids", [])
        tensors = [op * 64 for op, _ in ids]
        given.append(op_of(example) | {"tensors": tensors, "tensor_sources": [pair for pair in ids if pair[0]]})
        nested = json.dumps(example.get("sizes"))
        expected.append(example["text"].replace(nested, example.get("flat", nested)))

    assert any("flat" in example for example in examples)
    assert written(native, "TORCH", given) == expected


def test_payload_form(native: Native) -> None:
    examples = EXAMPLES["interned"]

    assert written(native, "PAYLOAD", [op_of(example) for example in examples]) == [each["text"] for each in examples]
