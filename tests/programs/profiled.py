"""profiled.py PROGRAM FOLDER NAME[=OPTION,...] ...: another program under torch.profiler, once for each NAME.

The options are shapes, stack and memory. Each run exports a trace, FOLDER/NAME.json. Prints, as JSON, what the profiler
itself says of each: its list's length, its averages and their table.
"""

import importlib
import json
import sys
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def run(main, out, options):
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes="shapes" in options,
        with_stack="stack" in options,
        profile_memory="memory" in options,
    ) as profiler:
        main()
    profiler.export_chrome_trace(str(out))
    averages = profiler.key_averages(group_by_input_shape="shapes" in options)
    return {
        "events": len(profiler.events()),
        "averages": [
            (
                str(one.key),
                str(one.input_shapes),
                one.count,
                one.cpu_time_total,
                one.self_cpu_time_total,
                (one.cpu_memory_usage, one.self_cpu_memory_usage),
            )
            for one in averages
        ],
        "table": averages.table(sort_by="self_cpu_time_total", row_limit=10_000),
    }


program, folder, *runs = sys.argv[1:]
sys.argv = [program]
main = importlib.import_module(program).main
said = {}
for name, _, options in (run.partition("=") for run in runs):
    said[name] = run(main, Path(folder) / f"{name}.json", options.split(","))
print(json.dumps(said))
