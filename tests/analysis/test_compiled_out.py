"""Programs under `record(compiled=True)`: their kernels have the lines that torch's own log names for them."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

import opspan
from emit.running import run
from opspan.analysis.provenance import AMBIGUOUS, matched

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent.parent / "programs" / "compiled_programs.py"
NAMES = re.findall(r"^@program\ndef (\w+)", PROGRAM.read_text(), flags=re.MULTILINE)
STACKS = "inductor_provenance_tracking_kernel_stack_traces"
KERNEL = re.compile(r"^(?:graph_\d+_)?(cpp_fused\w*)$")


def digest(folder: Path, name: str, *arguments: str, **environment: str) -> str:
    own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    done = run([sys.executable, PROGRAM, name, *arguments], env=own | environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def named_by_torch(folder: Path) -> dict[str, list[set[str]]]:
    """Returns for each kernel the lines of each of its calls, as the log of TORCH_TRACE has them."""
    lines: dict[str, list[set[str]]] = defaultdict(list)
    for log in folder.glob("*.log"):
        for entry in re.split(r"^(?=[VIWEC]\d{4} )", log.read_text(), flags=re.MULTILINE):
            if STACKS not in entry.partition("\n")[0]:
                continue
            payload = "".join(line[1:] for line in entry.splitlines(keepends=True)[1:])
            for kernel, stacks in json.loads(payload or "{}").items():
                lines[kernel.partition(":")[0]].append({own_line(stack) for stack in stacks if "File " in stack})
    return lines


def own_line(stack: str) -> str:
    """Returns the innermost line of a stack that is not torch's; if all are torch's, the innermost."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', stack)
    file, number, function = ([frame for frame in frames if "/torch/" not in frame[0]] or frames)[-1]
    return f"{Path(file).name}:{number} {function}"


@pytest.mark.parametrize(
    "name", [name if name == "mlp" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_kernels_have_the_lines_that_torch_names(name: str, tmp_path: Path) -> None:
    log, capture = tmp_path / "log", tmp_path / "capture"
    plain = digest(tmp_path, name)
    assert digest(tmp_path, name, str(capture), TORCH_TRACE=str(log)) == plain

    trace = opspan.load(capture)
    truth = named_by_torch(log)
    ranges = trace.analysed.attributed.ranges
    matches = matched(trace.analysed.attributed)
    texts = ranges["name"].cast(pl.String).to_list()
    ran = 0
    for text, call in zip(texts, matches.of_ranges.to_list(), strict=True):
        if not (kernel := KERNEL.match(text)):
            continue
        ran += 1
        assert call is not None, text
        if call != AMBIGUOUS:
            assert set(matches.calls["lines"][call]) in truth[kernel[1]], text
    assert ran or name == "autotuned"
    table = trace.table("line").rows
    assert table["self_cpu_ns"].sum() == ranges["self_ns"].sum()
    assert not trace.ranges["name"].cast(pl.String).str.starts_with("torch.compile log").any()
    assert not trace.issues.filter(pl.col("severity") != "info").height


@pytest.mark.slow
def test_compiled_kernels_are_in_the_modules_of_the_eager_model(tmp_path: Path) -> None:
    program = PROGRAM.with_name("compiled_layers.py")
    own = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    done = run([sys.executable, program, "eager", "compiled"], env=own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    def modules_of(folder: str, op: str) -> list[str]:
        ranges = opspan.load(tmp_path / folder).analysed.complete.ranges
        named = ranges.sort("start_ns").filter(pl.col("name").cast(pl.String) == op)
        return named["module"].cast(pl.String).to_list()

    linear = ["Net.blocks.0.fc", "Net.blocks.1.fc", "Net.head"]
    assert modules_of("eager", "aten::addmm") == linear
    assert modules_of("compiled", "aten::addmm") == linear * 2
    trace = opspan.load(tmp_path / "compiled")
    eager = set(opspan.load(tmp_path / "eager").table("module").rows["module"].drop_nulls())
    ancestors = {name.rpartition(".")[0] for name in eager}
    assert set(trace.table("module").rows["module"].drop_nulls()) <= eager | ancestors
    backward = trace.provenance.filter(phase="backward").drop_nulls("node")
    assert set(backward["module_path"].cast(pl.String)) >= {f"Net.blocks.{number}.norm" for number in (0, 1)}
    # The two layer norms of the forward are one kernel's calls, in different modules.
    ranges = trace.analysed.complete.ranges
    fused = ranges.filter(pl.col("name").cast(pl.String).str.contains("cpp_fused"))
    assert fused.height
    assert fused["module"].null_count() == 0
