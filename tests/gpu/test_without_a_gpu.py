"""The programs run where there is no GPU, on the CPU, and rows are those of the file: so that what needs a GPU is
right when there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from builders import kineto
from emit.running import forked_file
from gpu.children import HERE, Ended
from gpu.work_rows import of_chrome, of_trace
from tiers import before_release

pytest.importorskip("torch")

SOME = [
    ("watched", "mlp", "torch"),
    ("watched", "transformer_amp", "record"),
    ("watched", "copies", "profile"),
    ("graphs", "2", "record"),
    ("trouble", "loader", "record"),
    ("cost", "device"),
]
MORE = [
    *(("watched", name, "record") for name in ("mlp", "conv_net", "two_streams", "optimizers")),
    *(("trouble", name, "record") for name in ("oom_caught", "oom_leaves", "never_ended", "torch_is_on", "memory")),
    ("trouble", "one_after_another", "record"),
    ("compiled", "default", "record"),
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [*SOME, *before_release(MORE)], ids=" ".join)
def test_a_program_ends_well(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    name, first, *others = arguments
    done = forked_file(HERE / f"{name}.py", first, tmp_path, *others, env={"CUDA_VISIBLE_DEVICES": ""})
    told = Ended(done.returncode, done.stdout, done.stderr).told
    assert told["has_gpu"] is False
    if "record" in others and name != "compiled":
        assert (tmp_path / "recorded").is_dir() or (tmp_path / "recorded0").is_dir()


def test_rows_of_a_file_are_those_that_opspan_reads(tmp_path: Path) -> None:
    file = kineto.write(tmp_path / "run.json")
    rows = of_chrome(file)
    ours = of_trace(opspan.load(file).analysed)
    gemm, call = "void ns::gemm<float, 4>(float*, int)", "cudaLaunchKernel"
    assert [row[:4] for row in ours] == [
        ("kernel", gemm, "aten::addmm", call),
        ("kernel", gemm, "aten::mm", call),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", "ProfilerStep#7", "cudaMemcpyAsync"),
    ]
    assert [(row.kind, row.name, row.call, row.time_ns, row.stream, row.correlation) for row in rows] == [
        (row.kind, row.name, row.call, row.time_ns, row.stream, row.correlation) for row in ours
    ]
