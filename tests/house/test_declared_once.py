"""A class name stands for one class, and a field of the views is declared in one place."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict

from house.tree import REPO, modules

TORCH_NAMES = {"profile"}  # torch.profiler.profile and torch.autograd.profiler.profile


def test_each_class_name_is_used_once():
    places = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(REPO)}:{node.lineno}")

    assert len(places) > 300
    assert {name: at for name, at in places.items() if len(at) > 1 and name not in TORCH_NAMES} == {}


def test_each_field_is_declared_once():
    declared = Counter()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Field":
                texts = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
                if len(texts) == 2:
                    declared[tuple(texts)] += 1

    assert len(declared) > 40
    assert [field for field, count in declared.items() if count > 1] == []
