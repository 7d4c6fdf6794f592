"""What a stranger looks at first: the files at the top, how to report and to cite, and what the workflows do."""

from __future__ import annotations

import re

import pytest

from house.tree import REPO, files

# Whatever else is new has a place in a folder.
AT_THE_TOP = {
    ".clang-format",
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
}
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in files(".github/workflows/*.yml")}


def test_the_top_has_few_files() -> None:
    assert {path.name for path in files() if path.parent == REPO} == AT_THE_TOP


def test_the_citation_is_of_this_project() -> None:
    lines = (REPO / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([\w-]+): (.+)$", lines, re.MULTILINE))
    project = (REPO / "pyproject.toml").read_text(encoding="utf-8")

    assert {"message", "title", "abstract"} <= set(fields)  # with authors, what the schema requires, and some more
    assert re.search(r"^authors:\n  - name: \S", lines, re.MULTILINE)
    assert (fields["cff-version"], fields["type"]) == ("1.2.0", "software")
    for name, key in {"version": "version", "license": "license", "title": "name", "abstract": "description"}.items():
        (said,) = re.findall(rf'^{key} = "(.*)"$', project, re.MULTILINE)
        assert fields[name].removesuffix(".") == said


@pytest.mark.parametrize("name", ["SECURITY.md", ".github/CODE_OF_CONDUCT.md", "CITATION.cff"])
def test_no_address_is_invented(name: str) -> None:
    assert not re.search(r"https?:|mailto:|\S@\S", (REPO / name).read_text(encoding="utf-8"))


def test_reports_go_where_the_repository_is() -> None:
    said = (REPO / "SECURITY.md").read_text(encoding="utf-8")

    assert "(docs/security.md)" in said
    assert "private reporting of the place where this repository is hosted" in said


@pytest.mark.parametrize(("name", "script"), [("test", ".ci/run"), ("wheels", "tools/wheels"), ("docs", "mkdocs.yml")])
def test_workflows_call_the_scripts_that_also_run_by_hand(name: str, script: str) -> None:
    commands = re.findall(r"- run: (.*)", WORKFLOWS[f"{name}.yml"])

    (command,) = (command for command in commands if script in command)
    path = next(word for word in command.split() if script in word)
    assert (REPO / path).is_file()


def test_wheels_are_attested_for_both_architectures() -> None:
    workflow = WORKFLOWS["wheels.yml"]

    assert re.findall(r"arch: (\w+)", workflow) == ["x86_64", "aarch64"]
    assert "actions/attest-build-provenance@" in workflow
    assert {"id-token: write", "attestations: write"} <= {line.strip() for line in workflow.splitlines()}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_publish_nothing_and_may_write_nothing(name: str) -> None:
    workflow = WORKFLOWS[name]

    assert re.search(r"^permissions:\n  contents: read\njobs:$", workflow, re.MULTILINE)
    assert set(re.findall(r"(\S+): write", workflow)) <= {"id-token", "attestations"}
    assert all(action.startswith("actions/") for action in re.findall(r"uses: (\S+)", workflow))
    assert not re.search(r"publish\b(?!e)|upload-release|deploy|twine upload|gh release|secrets\.", workflow)
