"""Labels a training loop for Nsight Systems, runs it under nsys, and reads the report back.

    python docs/examples/nsys_report.py

It starts itself a second time, under nsys. A program of yours needs the `with` block in `train` and the command alone;
on a machine with a GPU the command has `-t cuda,nvtx`. Leaves labelled.nsys-rep, which nsys-ui opens.
"""

import shlex
import shutil
import subprocess
import sys

import opspan


def train() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with opspan.emit_nvtx(record_shapes=True):
        for number in range(3):
            with opspan.annotate("train step", payload=number):
                model(torch.randn(5, 8)).sum().backward()


def main() -> None:
    if shutil.which("nsys") is None:
        sys.exit("nsys is not on the PATH: install Nsight Systems (on Debian and Ubuntu: sudo tools/vendor-tools)")
    command = ["nsys", "profile", "-t", "nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    command += ["-o", "labelled", sys.executable, __file__, "train"]
    print("$", shlex.join(command), flush=True)
    subprocess.run(command, check=True)

    trace = opspan.load("labelled.nsys-rep")
    print(trace.events().key_averages().table(sort_by="self_cpu_time_total", row_limit=8))
    print(*trace.coverage.lines(), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        main()
