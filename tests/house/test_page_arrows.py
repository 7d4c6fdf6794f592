"""The arrows between the files of the page (src/page), which docs/page.md shows."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

from house.tree import REPO, files

PAGE = REPO / "src" / "page"
IMPORT = re.compile(r"""^(?:import|export|\} from)\b.*?["'](\.[^"']+\.ts)["'];""", re.MULTILINE)
FRAME = {"page.ts", "report.ts", "tensorboard.ts"}


def arrows() -> dict[str, set[str]]:
    """For each TypeScript file of the page: the files that it imports, types included."""
    return {
        str(path.relative_to(PAGE)): {
            str((path.parent / target).resolve().relative_to(PAGE))
            for target in IMPORT.findall(path.read_text("utf-8"))
        }
        for path in files("src/page/*.ts")
    }


def rank(file: str) -> int:
    """The shelf that a file stands on: the frame above the sections, then the timeline, then what all of them share."""
    if file in FRAME:
        return 3
    return {"sections": 2, "timeline": 1}.get(file.partition("/")[0], 0)


def test_every_relative_import_is_seen() -> None:
    # An import in a form that IMPORT does not know would hide an arrow.
    for path in files("src/page/*.ts"):
        text = path.read_text("utf-8")
        assert len(re.findall(r"""["']\.[^"']*\.ts["']""", text)) == len(IMPORT.findall(text)), path


def test_no_files_of_the_page_import_each_other_in_a_circle() -> None:
    TopologicalSorter(arrows()).prepare()  # raises CycleError, which names the circle


def test_files_of_the_page_import_none_from_a_higher_shelf() -> None:
    wrong = [
        f"{file} imports {target}"
        for file, targets in arrows().items()
        for target in targets
        if rank(target) > rank(file)
    ]
    assert not wrong, "\n".join(wrong)
