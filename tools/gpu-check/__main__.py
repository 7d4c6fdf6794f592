"""Gathers the facts about a GPU on which opspan relies. Writes them to files for tests. Needs a machine with a GPU.

    python tools/gpu-check all --out FOLDER             runs every part, within 6 minutes
    python tools/gpu-check queue clocks --out FOLDER    runs these parts
    python tools/gpu-check all --out FOLDER --dry       runs without a GPU: stand-ins for CUDA do nothing

Each part is a process with its own time limit. If a part fails or reaches its limit, its results until then are kept,
and the other parts still run. A dry run finds simple mistakes in the code. FOLDER gets three files:

    gpu-check.json    the results of each part, or the reason why it failed
    traces.tar.gz     traces, snapshots and tables of vendors' tools, in a folder for each part
    log.txt           the output of the parts

Parts that do not measure times run in parallel. Each part is a module in this folder, which explains its results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import processes

ALL = "all"
MOST_BYTES = 10 << 20  # the maximum size of traces.tar.gz, in bytes


@dataclass(frozen=True)
class Part:
    module: str
    limit_s: int
    turn: int  # parts with the same turn run at the same time; lower turns run first


PARTS = {
    "tensor-cores": Part("tensor_cores", 150, 1),
    "queue": Part("launch_depth", 40, 2),
    "clocks": Part("clocks", 60, 3),
    "sync": Part("synchronisation", 30, 4),
    "graphs": Part("graphs", 90, 5),
    "compiled": Part("compiled", 90, 5),
    "memory": Part("memory_peaks", 60, 5),
    "operations": Part("operations", 90, 5),
    "collector": Part("collector", 90, 5),
    "ranges": Part("vendor_ranges", 70, 6),  # runs after `collector`, which builds opspan's observer
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    if options.child:
        return child(options.parts[0], options.out)
    began = time.monotonic()
    names = list(PARTS) if ALL in options.parts else [name for name in PARTS if name in options.parts]
    options.out.mkdir(parents=True, exist_ok=True)
    answers: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as text:
        work = Path(text)
        for turn in sorted({PARTS[name].turn for name in names}):
            beside = [name for name in names if PARTS[name].turn == turn]
            left_s = options.seconds - (time.monotonic() - began)
            answers |= of_turn(beside, work, left_s, options.dry, began)
            keep(answers, work, options.out)  # write early, because the machine can be taken away at any time
    print(f"Wrote {options.out} ({len(names)} parts, {time.monotonic() - began:.0f} s)", flush=True)
    return 0 if all("failed" not in answer for answer in answers.values()) else 1  # type: ignore[operator]


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", metavar="PART", choices=[*PARTS, ALL], help=f"{ALL}, or {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the results go")
    parser.add_argument("--seconds", type=int, default=360, metavar="N", help="for all parts together [default: 360]")
    parser.add_argument("--dry", action="store_true", help="run without a GPU: CUDA is replaced")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def child(name: str, folder: Path) -> int:
    """Runs one part in this process. A part consists of pieces, which are single measurements. After each piece, the
    results so far are written into FOLDER/result.json."""
    import gpu  # imports torch, which takes seconds and which the parent process does not need

    if gpu.DRY:
        gpu.replace_cuda()
    pieces = gpu.Pieces(folder)
    import_module(PARTS[name].module).main(pieces)
    return 0


def of_turn(names: Sequence[str], work: Path, left_s: float, dry: bool, began: float) -> dict[str, object]:
    """Runs the parts of one turn in parallel. Returns the results of each part."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1", **({"GPU_CHECK_DRY": "1"} if dry else {}))
    started: list[tuple[str, Path, subprocess.Popen[bytes], float]] = []
    answers: dict[str, object] = {}
    for name in names:
        limit_s = min(PARTS[name].limit_s, left_s)
        if limit_s < 10:
            answers[name] = {"failed": f"not begun: {left_s:.0f} s were left of all"}
            print(f"{time.monotonic() - began:6.1f} s  {name}: not begun, no time is left", flush=True)
            continue
        folder = work / name
        folder.mkdir()
        command = [sys.executable, str(Path(__file__).parent), name, "--out", str(folder), "--child"]
        print(f"{time.monotonic() - began:6.1f} s  {name}: begins, at most {limit_s:.0f} s", flush=True)
        with (folder / "log.txt").open("wb") as log:
            process = processes.start(command, environment, log)
        started.append((name, folder, process, time.monotonic() + limit_s))
    for name, folder, process, end in started:
        code = processes.wait(process, end)
        answer = json.loads(text) if (text := read(folder / "result.json")) else {}
        if code is None:
            answer["failed"] = "ended at its time limit; what was found until then is here"
        elif code:
            answer["failed"] = f"exit code {code}: " + " | ".join(read(folder / "log.txt").splitlines()[-4:])
        failed = [key for key, found in answer.items() if isinstance(found, dict) and "failed" in found]
        said = answer.get(
            "failed", f"done, {len(answer)} pieces" + (f"; failed: {', '.join(failed)}" if failed else "")
        )
        print(f"{time.monotonic() - began:6.1f} s  {name}: {said}", flush=True)
        answers[name] = answer
    return answers


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def keep(answers: dict[str, object], work: Path, out: Path) -> None:
    """Writes the results so far, and packs the files of all parts. If the files are too large together, packs only the
    smallest of them and lists the others."""
    logs = sorted(work.glob("*/log.txt"))
    (out / "log.txt").write_text("".join(f"== {log.parent.name}\n{read(log)}\n" for log in logs), encoding="utf-8")
    paths = [path for path in work.glob("*/**/*") if path.is_file() and path.name not in ("log.txt", "result.json")]
    kept, left_out = smallest(paths, MOST_BYTES)
    with tarfile.open(out / "traces.tar.gz", "w:gz", compresslevel=6) as archive:
        for path in sorted(kept):
            archive.add(path, str(path.relative_to(work)))
    whole = answers | {
        "left out of traces.tar.gz": {str(path.relative_to(work)): path.stat().st_size for path in left_out}
    }
    (out / "gpu-check.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")


def smallest(paths: Sequence[Path], most_bytes: int) -> tuple[list[Path], list[Path]]:
    """Returns two lists of files. The first list has the smallest files, which together fit into `most_bytes` when they
    are compressed. The second list has the other files."""
    kept: list[Path] = []
    used = 0
    with tempfile.TemporaryFile() as nowhere:
        for nth, path in enumerate(ordered := sorted(paths, key=lambda path: path.stat().st_size)):
            nowhere.seek(0)
            nowhere.truncate()
            with tarfile.open(fileobj=nowhere, mode="w:gz", compresslevel=6) as archive:
                archive.add(path, path.name)
            used += nowhere.tell()
            if used > most_bytes:
                return kept, ordered[nth:]
            kept.append(path)
    return kept, []


if __name__ == "__main__":
    sys.exit(main())
