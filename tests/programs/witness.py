"""witness.py PROGRAM FOLDER: another program, recorded into FOLDER while torch.profiler watches too.

Prints the profiler's raw events, as a list of [name, torch's thread, seq, forward thread, is backward, start].
"""

import importlib
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile

import opspan

program, folder = sys.argv[1:]
sys.argv = [program]
main = importlib.import_module(program).main
every_thread = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
watched = profile(activities=[ProfilerActivity.CPU], experimental_config=every_thread)
with watched, opspan.record(path=folder):
    main()
BACKWARD = 1  # RecordScope::BACKWARD_FUNCTION
print(
    json.dumps(
        [
            (e.name(), e.start_thread_id(), e.sequence_nr(), e.fwd_thread_id(), e.scope() == BACKWARD, e.start_ns())
            for e in watched.profiler.kineto_results.events()
        ]
    )
)
