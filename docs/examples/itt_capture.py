"""Labels a training loop for ITT, as for VTune, and captures it with `opspan run`: no VTune is needed.

    python docs/examples/itt_capture.py

It starts itself a second time, under `opspan run`. Leaves the folder itt-capture, which `opspan table`
reads; to run it again, delete that. Under VTune the same program is labelled by

    vtune -collect hotspots -knob enable-user-tasks=true -r r000hs -- python docs/examples/itt_capture.py train
"""

import shlex
import subprocess
import sys

import opspan


def train() -> None:
    import torch

    convolution = torch.nn.Conv2d(3, 4, 3)
    with opspan.emit_itt(record_shapes=True):
        for _ in range(3):
            convolution(torch.randn(1, 3, 8, 8)).sum().backward()


def main() -> None:
    command = [sys.executable, "-m", "opspan", "run", "-o", "itt-capture", "--", sys.executable, __file__, "train"]
    print("$", shlex.join(command), flush=True)
    subprocess.run(command, check=True)

    trace = opspan.load("itt-capture")
    # Sizes and sequence numbers, of which torch's own emit_itt writes none.
    print(*trace.ranges.filter(name="aten::convolution").select("name", "seq", "sizes").rows(), sep="\n")
    print(trace.events().key_averages().table(sort_by="self_cpu_time_total", row_limit=8))


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        main()
