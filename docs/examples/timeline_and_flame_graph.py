"""Writes a trace for Perfetto, and stacks for flame graphs.

    python docs/examples/timeline_and_flame_graph.py           of a small model that it records
    python docs/examples/timeline_and_flame_graph.py capture   of any file that opspan reads

Leaves run.json.gz, for https://ui.perfetto.dev, and run.stacks, for flamegraph.pl, inferno or https://speedscope.app.
`opspan export capture run.stacks` does the same from the shell.
"""

import sys
from pathlib import Path

import opspan


def recorded() -> opspan.Trace:
    import torch

    model = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    with opspan.record(modules=True) as recording:
        for _ in range(2):
            model(torch.randn(2, 8, 32)).sum().backward()
    return recording.trace


trace = opspan.load(*sys.argv[1:]) if sys.argv[1:] else recorded()
for out in (Path("run.json.gz"), Path("run.stacks")):
    left_out = trace.export(out, overwrite=True)
    print(f"Wrote {out} ({out.stat().st_size:,} bytes)", *left_out, sep="\n  ")

longest = max(Path("run.stacks").read_text().splitlines(), key=lambda line: int(line.rpartition(" ")[2]))
print("Most time was spent in:", *longest.rpartition(" ")[0].split(";"), sep="\n  ")
