"""Runs the benches and prints their figures. Can keep the figures in kept.json, or compare them with another commit.

    python tools/bench                      runs all benches that have goals (15 minutes, 3 GB of disk)
    python tools/bench read page            runs these benches only
    python tools/bench --keep               writes the figures into kept.json and docs/figures.md, with commit and day
    python tools/bench --against HEAD~1 read    compares the figures with those of that commit

With --against, opspan is built twice: from that commit and from this working tree. Each build gets a new environment,
with the packages of this environment. The benches of this tree measure both builds in turn. A figure is worse if every
new run is worse than every old run, and if the difference of the medians is larger than 3 % and larger than the
differences between runs of one build. If a figure looks worse, all runs are repeated before the figure is reported. The
exit code is 1 if any figure is worse.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from changes import Change, changes
from figures import FILE, Figure, read
from headlines import HEADLINES

HERE = Path(__file__).parent
REPO = HERE.parents[1]
PAGE = REPO / "docs" / "figures.md"
TABLE = HERE / "kept.json"
BEGIN, END = "<!-- python tools/bench --keep writes from here -->\n", "<!-- to here -->\n"
HEAD = "| of | figure | measured | goal | | of commit |\n| --- | --- | --- | --- | --- | --- |\n"
PARTS = {
    "emit": ("emit.py", "--quick"),
    "compiled": ("compiled.py", "--quick"),
    "profiler": ("profiler.py", "--quick"),
    "rolling": ("rolling.py", "--cost"),
    "read": ("read.py", "--quick"),
    "others": ("read.py", "--others", "--quick"),
    "walk": ("walk.py",),
    "answers": ("answers.py", "--rounds", "1"),
    "page": ("page.py",),
    "ranks": ("ranks.py", "--quick"),
    "export": ("export.py", "--rows", "1000000"),
}


def main() -> int:
    options = arguments()
    parts = options.parts or list(PARTS)
    if options.against:
        return against(options.against, parts, options.pairs)
    figures, failed = [], []
    for part in parts:
        try:
            of_part = measure(part, sys.executable)
        except BenchError as error:  # go on with the other benches, because each of them takes minutes
            failed.append(str(error))
            continue
        if options.keep:
            keep(of_part)
        figures += of_part
    missed = [one for one in figures if one.met is False]
    print(f"\n{len(figures)} figures, {len(missed)} of which miss their goal")
    print(*failed, sep="\n", end="\n" if failed else "", file=sys.stderr)
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [default: all]")
    parser.add_argument("--keep", action="store_true", help="write them into kept.json and docs/figures.md")
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each commit [default: 3]")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if options.against and options.keep:
        parser.error("--keep writes what was measured of this commit alone: leave out --against")
    if options.pairs < 2:
        parser.error("--pairs: two runs of each at least, or nothing tells what is noise")
    if options.keep and git("status", "--porcelain", "--", "src", "native"):
        parser.error("--keep says of which commit the figures are, and src or native have changes that are in none")
    return options


class BenchError(SystemExit):
    """An error whose message names the bench that failed."""


def measure(part: str, python: str | Path, quiet: bool = False) -> list[Figure]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        file.touch()
        name, *options = PARTS[part]
        done = subprocess.run(
            [python, HERE / name, *options],
            env={**os.environ, FILE: str(file)},
            stdout=subprocess.DEVNULL if quiet else None,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"{part}: {' '.join(PARTS[part])} failed with exit code {done.returncode}")
        print(f"  [{part}: {time.perf_counter() - began:.0f} s]", flush=True)
        return read(file)


# --- the table


def keep(figures: Sequence[Figure]) -> None:
    """Writes the figures into kept.json, and removes from it the older figures that have the same bench and title. Then
    writes the figures that headlines.py lists into docs/figures.md."""
    kept = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else []
    again = {(one.bench, one.of) for one in figures}
    when = {"commit": git("rev-parse", "--short=7", "HEAD"), "day": datetime.date.today().isoformat()}
    rows = [row for row in kept if (row["bench"], row["of"]) not in again]
    rows += [{**asdict(one), **when} for one in figures]
    rows.sort(key=lambda row: (row["bench"], row["of"]))
    TABLE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2], encoding="utf-8")


def table(rows: Sequence[dict[str, object]]) -> str:
    """Returns a Markdown table of the figures that headlines.py lists. Below it is a sentence that says how many of all
    figures with a goal miss it."""
    known = {(row["bench"], row["of"], row["what"]): row for row in rows}
    lines = [_row(known[key]) for key in HEADLINES if key in known]
    verdicts = [verdict for row in rows if (verdict := _figure(row).met) is not None]
    return f"{HEAD}{''.join(lines)}\nOf {len(verdicts)} figures with a goal {verdicts.count(False)} miss it.\n"


def _figure(row: dict[str, object]) -> Figure:
    return Figure(**{name: row[name] for name in Figure.__dataclass_fields__})


def _row(row: dict[str, object]) -> str:
    one = _figure(row)
    cells = (f"{one.bench}: {one.of}", one.what, one.text, one.goal, one.verdict, f"{row['day']}, {row['commit']}")
    return f"| {' | '.join(cells)} |\n"


# --- two commits


def against(commit: str, parts: Sequence[str], pairs: int) -> int:
    full = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        tree = folder / "tree"
        git("worktree", "add", "--detach", "--force", str(tree), full)
        try:
            old, new = environment(folder / "old", tree), environment(folder / "new", REPO)
            compared = [one for part in parts for one in measure_in_turn(part, old, new, pairs)]
        finally:
            git("worktree", "remove", "--force", str(tree))
    for verdict, some in (
        ("better", [one for one in compared if one.is_better]),
        ("WORSE", [one for one in compared if one.is_worse]),
    ):
        print(f"\n{verdict}: {len(some)} of {len(compared)} figures")
        for one in some:
            print(_line(one))
    return 1 if any(one.is_worse for one in compared) else 0


def environment(folder: Path, tree: Path) -> Path:
    """Creates an environment that has opspan, built from `tree`, and all other packages of this environment. Returns
    the Python of the new environment."""
    venv.create(folder, symlinks=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    # The .pth file adds the packages of this environment to sys.path. Python does not read other .pth files in the
    # added folder, so it does not find packages that were installed there in editable mode, such as opspan.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, tree]
    subprocess.run([*map(str, command)], check=True)
    return folder / "bin" / "python"


def measure_in_turn(part: str, old: Path, new: Path, pairs: int) -> list[Change]:
    before: list[list[Figure]] = []
    after: list[list[Figure]] = []
    for _ in range(2):
        for _ in range(pairs):
            before.append(measure(part, old, quiet=True))
            after.append(measure(part, new, quiet=True))
        compared = changes(before, after)
        for one in compared:
            print(_line(one), flush=True)
        if not any(one.is_worse for one in compared):
            break
    return compared


def _line(one: Change) -> str:
    by = f"{one.worse_by:+.1%}, noise {one.noise:.1%}"
    verdict = " WORSE" if one.is_worse else " better" if one.is_better else ""
    values = " against ".join(", ".join(map(one.figure.show, values)) for values in (one.new, one.old))
    return f"  {one.figure.of}: {one.figure.what}: {values} ({by}){verdict}"


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(REPO), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
