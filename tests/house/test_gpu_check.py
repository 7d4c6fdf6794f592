"""tools/gpu-check: how it reads tables of ncu, and that a part which fails or hangs does not stop the others."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from house.tree import REPO
from tool_folders import importable

TOOL = REPO / "tools" / "gpu-check"
RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
GMMA, HMMA, HFMA2 = (f"sm__inst_executed_pipe_tensor_op_{kind}.sum" for kind in ("gmma", "hmma", "hmma_type_hfma2"))
NONE_SAID = ":none:none:none:none:none:none"


tool = importable("gpu-check")


def table(*rows: tuple[str, str, str, str, str, str]) -> str:
    """Returns a table as ncu writes it. A row has the name of a kernel, ranges, duration and three counters."""
    names = ["ID", "Process ID", RANGES, "Kernel Name", "Block Size", "Grid Size", "gpu__time_duration.sum"]
    names += [GMMA, HMMA, HFMA2]
    units = ["", "", "", "", "", "", "ns", "inst", "inst", "inst"]
    lines = [[str(nth), "7", row[1], row[0], "(128, 1, 1)", "(4, 1, 1)", *row[2:]] for nth, row in enumerate(rows)]
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in line) for line in (names, units, *lines)]
    return "\n".join(["==PROF== Connected to process 7", *quoted, "==PROF== Disconnected", ""])


def test_kernels_have_their_names_ranges_and_numbers() -> None:
    import ncu

    ranges = f'7  "<default domain>:outer{NONE_SAID}"  "opspan:aten::mm, sizes = [[2, 3]]{NONE_SAID}" '
    text = table(("void f<a, 4>(float *)", ranges, "2,336", "512", "0", "n/a"))

    (kernel,) = ncu.kernels(text)

    assert kernel == {
        "name": "void f<a, 4>(float *)",
        "grid": "(4, 1, 1)",
        "block": "(128, 1, 1)",
        "ranges": ["<default domain>:outer", "opspan:aten::mm, sizes = [[2, 3]]"],
        "metrics": {"gpu__time_duration.sum": 2336.0, GMMA: 512.0, HMMA: 0.0, HFMA2: None},
    }


def test_a_table_without_kernels_has_none() -> None:
    import ncu

    assert ncu.kernels("==ERROR== Failed to find metric\n") == []
    assert ncu.kernels(table()) == []


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({GMMA: 512.0, HMMA: 0.0}, True),
        ({GMMA: 0.0, HMMA: 8.0, HFMA2: 0.0}, True),
        ({GMMA: 0.0, HMMA: 8.0, HFMA2: 8.0}, False),  # no product
        ({GMMA: 0.0, HMMA: 0.0}, False),
        ({"sm__inst_executed_pipe_tensor.sum": 3.0}, True),
        ({GMMA: None}, None),
        ({}, None),
    ],
)
def test_tensor_cores_are_what_the_counters_say(metrics: dict[str, float | None], expected: bool | None) -> None:
    import ncu

    assert ncu.on_tensor_cores(metrics) is expected


def test_only_metrics_that_the_card_has_are_asked_for() -> None:
    import ncu

    listed = "Device NVIDIA H100 (GH100)\n" + f"{GMMA.removesuffix('.sum')}    Counter   # of warp instructions\n"

    assert ncu.known([GMMA, HMMA], listed) == [GMMA]


def test_at_its_limit_a_process_ends_with_all_that_it_started(tmp_path: Path) -> None:
    import processes

    inner = f"import time, pathlib; time.sleep(4); pathlib.Path({str(tmp_path / 'late')!r}).touch()"
    outer = f"import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', {inner!r}])"

    ended = processes.run([sys.executable, "-c", outer], 2, tmp_path / "log")
    time.sleep(4)

    assert "failed" in ended
    assert ended["last_lines"] == ["begun"]
    assert not (tmp_path / "late").exists()


def test_of_too_many_bytes_the_smallest_files_are_kept(tmp_path: Path) -> None:
    main = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1]); import pathlib, runpy, os\n"
            "main = runpy.run_path(sys.argv[1])\n"
            "folder = pathlib.Path(sys.argv[2]); sizes = {'small': 100, 'large': 100_000, 'larger': 200_000}\n"
            "for name, size in sizes.items(): (folder / name).write_bytes(os.urandom(size))\n"
            "kept, left_out = main['smallest'](list(folder.iterdir()), 150_000)\n"
            "print([path.name for path in kept], [path.name for path in left_out])",
            str(TOOL),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert main.stdout.split("\n")[0] == "['small', 'large'] ['larger']"
