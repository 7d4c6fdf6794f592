"""Names: one class has one name, a field of the views is declared once, a parameter says what it is."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict

from house.tree import REPO, modules
from opspan.views.answer_columns import COLUMNS, units

SAYS_NOTHING = {"found", "asked", "told", "said", "whole", "each", "made", "given", "kept"}
TORCH_NAMES = {"profile"}  # torch.profiler.profile and torch.autograd.profiler.profile


def test_each_class_name_is_used_once():
    places = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(REPO)}:{node.lineno}")

    assert len(places) > 200
    assert {name: at for name, at in places.items() if len(at) > 1 and name not in TORCH_NAMES} == {}


def fields():
    """Yields the name and the title of each field that is declared with texts, and the unit: None if it is no text."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Field":
                texts = [each.value if isinstance(each, ast.Constant) else None for each in node.args[:3]]
                if len(texts) >= 2 and None not in texts[:2]:
                    yield (*texts, None)[:3]


def test_each_field_is_declared_once():
    declared = Counter((name, title) for name, title, _ in fields())

    assert len(declared) > 40
    assert [field for field, count in declared.items() if count > 1] == []


def test_people_see_columns_in_the_unit_that_programs_are_told():
    told = {name: unit for title in COLUMNS for name, unit in units(title).items()}
    base = {"ns": "ns", "signed ns": "ns", "bytes": "bytes", "share": "share", "signed share": "share"}
    # "decimal bytes" is the unit of sizes and of rates.
    shown = {
        (name, base.get(unit, "")) for name, _, unit in fields() if name in told and unit not in (None, "decimal bytes")
    }

    assert len(shown) > 40
    assert shown - told.items() == set()


def test_each_parameter_says_what_it_is():
    poor = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.arguments):
                names = [one.arg for one in (*node.posonlyargs, *node.args, *node.kwonlyargs)]
                poor += [f"{path.relative_to(REPO)}: {name}" for name in names if name in SAYS_NOTHING]

    assert poor == []
