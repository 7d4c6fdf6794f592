"""profiled.py PROGRAM OUT.json [shapes] [stack] [memory]: another program under torch.profiler, which exports a trace.

Prints, as JSON, what the profiler itself says of it: its list's length, its averages and their table.
"""

import importlib
import json
import sys

from torch.profiler import ProfilerActivity, profile

program, out, *options = sys.argv[1:]
sys.argv = [program]
main = importlib.import_module(program).main
with profile(
    activities=[ProfilerActivity.CPU],
    record_shapes="shapes" in options,
    with_stack="stack" in options,
    profile_memory="memory" in options,
) as profiler:
    main()
profiler.export_chrome_trace(out)
by_shapes = {"group_by_input_shape": "shapes" in options}
averages = profiler.key_averages(**by_shapes)
print(
    json.dumps(
        {
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
    )
)
