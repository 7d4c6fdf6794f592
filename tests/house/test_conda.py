"""tools/conda/recipe.yaml is a recipe for rattler-build, and asks for what pyproject.toml asks for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from house.test_dependencies import project
from house.tree import REPO

rattler_build = pytest.importorskip("rattler_build", reason="pip install py-rattler-build")
PROJECT: dict[str, Any] = project()


@pytest.fixture(params=["linux-64", "linux-aarch64"])
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def recipe(platform: str) -> dict[str, Any]:
    """Returns the recipe as rattler-build sees it on a platform."""
    config = rattler_build.RenderConfig(rattler_build.PlatformConfig(target_platform=platform))
    file = rattler_build.Stage0Recipe.from_file(REPO / "tools" / "conda" / "recipe.yaml")
    (variant,) = file.render(rattler_build.VariantConfig({"python": ["3.12.*"]}), config)
    return dict(variant.recipe.to_dict())


def test_it_is_the_package_of_pyproject(recipe: dict[str, Any]) -> None:
    assert recipe["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["license"] == PROJECT["license"]
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_it_runs_with_the_packages_of_pyproject(recipe: dict[str, Any], platform: str) -> None:
    expected = {f"python {PROJECT['requires-python']}"}
    for requirement in PROJECT["dependencies"]:
        package, _, condition = requirement.partition(";")
        if not condition or platform == "linux-64":
            expected.add(re.sub(r"([<>=])", r" \1", package, count=1).strip())
    assert set(recipe["requirements"]["run"]) == expected


def test_the_headers_are_those_of_the_platform(recipe: dict[str, Any], platform: str) -> None:
    assert recipe["context"]["targets"] == {"linux-64": "x86_64-linux", "linux-aarch64": "sbsa-linux"}[platform]
